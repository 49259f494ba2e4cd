"""Checks a submitted job: the project, the script within it, arguments without secrets, and the options."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath

from autotune.errors import StudyExistsError, UsageError
from autotune.store.job_records import JobRequest
from autotune.store.repository import Repository, check_name
from autotune.store.secrets import mask_arguments
from autotune.study_file.file_origin import lies_in
from autotune.study_file.job_options import check_job_options

MAX_MACHINES = 64
MAX_WORDS = 256
MAX_WORD_LENGTH = 4096
_SUFFIX = ".py"


def checked_request(
    *,
    project: str,
    script: str,
    args: Sequence[str],
    options: Mapping[str, object],
    machines: int,
    projects: Mapping[str, Path],
    elsewhere: Collection[str],
) -> JobRequest:
    """The request of a job.

    Args:
        project: Name of a registered project.
        script: Path of the script, relative to the project's folder.
        args: Arguments of the script.
        options: Options of the search by key, as in a study file.
        machines: Number of workers that search together.
        projects: Folders of the server's own projects, by name.
        elsewhere: Names of projects registered by workers.

    Raises:
        UsageError: A part is impossible.
    """
    if project not in projects and project not in elsewhere:
        known = ", ".join(sorted({*projects, *elsewhere})) or "none"
        raise UsageError(f"There is no project {project!r}.", f"Registered: {known}.")
    _check_script(script, projects.get(project))
    _check_args(args)
    values = check_job_options(options)
    study = str(values.pop("study", "") or f"{PurePosixPath(script).stem}-{{id}}")
    check_name(study)
    return JobRequest(study=study, project=project, script=script, args=tuple(args), options=values, machines=machines)


def check_study_is_new(repository: Repository, study: str) -> None:
    """Refuses the name of a stored study.

    Raises:
        StudyExistsError: The database holds the study.
    """
    if study in repository.names():
        raise StudyExistsError(f"The database holds a study {study!r} already.", "Give another name with --study.")


def _check_script(script: str, folder: Path | None) -> None:
    path = PurePosixPath(script)
    is_inside = script.isprintable() and not path.is_absolute() and ".." not in path.parts and len(script) <= 1024
    if not is_inside or not script or script.startswith(("-", "~")) or "\\" in script:
        raise UsageError(f"{script[:200]!r} is not a path within the project.", "Name a script such as train.py.")
    if path.suffix != _SUFFIX:
        raise UsageError(f"{script!r} is not a Python script.", f"The script ends in {_SUFFIX}.")
    if folder is not None and not (lies_in(script, folder) and (folder / script).is_file()):
        raise UsageError(f"The project has no script {script!r}.", "The path is relative to the project's folder.")


def _check_args(args: Sequence[str]) -> None:
    if len(args) > MAX_WORDS or any(len(word) > MAX_WORD_LENGTH or "\0" in word for word in args):
        raise UsageError(
            "The script's arguments are too many, too long, or hold a zero byte.",
            f"At most {MAX_WORDS} words of {MAX_WORD_LENGTH} characters.",
        )
    if tuple(mask_arguments(list(args))) != tuple(args):
        raise UsageError(
            "The script's arguments hold a secret, which a job does not keep.",
            "Let the script read the secret from a variable that is set on the workers.",
        )
