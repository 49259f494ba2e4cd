"""Prepares the search of a leased job: the words of the command, and the trust in a stored study."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune.errors import HostError, StoreError, UsageError
from autotune.service.worker.own_folders import own_folder
from autotune.spec import SearchSpec
from autotune.store.job_queue import has_lease
from autotune.store.records import Owner, StudyRecord
from autotune.store.repository import Repository
from autotune.store.url import mask_url, sqlite_path
from autotune.study import trust_record
from autotune.study.status import is_final
from autotune.study_file.asked import asked
from autotune.study_file.file_origin import lies_in
from autotune.study_file.job_options import as_flags, check_job_options, job_words
from autotune.study_file.search_options import VARIABLES

CONFIG = "autotune.yaml"
OWNER_WAIT_S = 20.0
"""Longest wait for the end of an earlier search of the study on this machine, such as the search of a killed worker."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeasedJob:
    """A job with the right to run it."""

    lease: str
    fence: int
    heartbeat_s: float
    storage: str
    """Resolved URL of the database, named by the user of this machine, or by the server without a password."""
    job: Mapping[str, Any]
    """The job's document."""

    @property
    def study(self) -> str:
        """Name of the study."""
        return str(self.job["study"])


def search_words(leased: LeasedJob, folder: Path, *, unprotected: bool, network: bool) -> list[str]:
    """The words after `autotune`: a search, or a resume of a stored study.

    Args:
        leased: The job.
        folder: Folder of the project on this machine.
        unprotected: The user of this machine permits searches without protection.
        network: The user of this machine lets trials use the network.

    Raises:
        UsageError: The job leads outside the project, or the stored study runs something else than the job.
        HostError: The database is out of reach of this machine, or the stored study lets trials use the network and
            this machine does not.
    """
    job = leased.job
    script, args = str(job["script"]), [str(word) for word in job["args"]]
    if not lies_in(script, folder) or not (folder / script).is_file():
        raise UsageError(f"The project {job['project']!r} on this machine has no script {script!r}.", "Copy it there.")
    check_storage(leased)
    common = ["--jsonl", "--quiet", *(["--unprotected"] if unprotected else [])]
    with Repository.open(leased.storage) as repository:
        if leased.study not in repository.names():
            options = job_words(check_job_options(job["options"]))
            out = f"--out={_config_path(str(job['id']))}"
            options += ["--network"] if network else []
            return ["search", script, f"--study={leased.study}", out, "--force", *options, *common, "--", *args]
        _wait_for_owner(repository, leased.study)
        record = repository.study(leased.study)
        if not is_final(record):
            _trust(record, job, args, folder, network=network)
    return ["resume", leased.study, *common]


def check_storage(leased: LeasedJob) -> None:
    """Checks that the worker's database is the server's: the server's database holds the lease.

    Raises:
        HostError: The database is another one, or is out of reach of this machine.
    """
    path = sqlite_path(leased.storage)
    if path is not None and not path.exists():
        raise HostError(
            "The server keeps its studies in a file of its own machine, where this machine cannot write.",
            "Start the server with --storage postgresql://user@host/database.",
        )
    shown = mask_url(leased.storage)
    try:
        is_the_servers = has_lease(leased.storage, leased.lease)
    except StoreError as error:
        raise HostError(
            f"The worker cannot use the server's database {shown}: {error.message}",
            f"The server sends no password: name the whole URL in {VARIABLES['storage']} at the worker.",
        ) from error
    if not is_the_servers:
        raise HostError(
            f"The worker's database {shown} is not the server's.",
            f"Name the server's database with --storage or {VARIABLES['storage']}.",
        )


def _config_path(job_id: str) -> Path:
    """A private place for the tuned config: the project's folder stays as it is."""
    folder = own_folder("jobs", job_id)
    if folder is None:
        raise HostError("There is no home folder for tuned configs.", "Set HOME or XDG_STATE_HOME.")
    return folder / CONFIG


def _wait_for_owner(
    repository: Repository, study: str, *, sleep: Callable[[float], None] = time.sleep, wait_s: float = OWNER_WAIT_S
) -> None:
    """Waits for the end of an earlier search of the study on this machine."""
    here = Owner.this_process().machine
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        if not any(owner.machine == here for owner in repository.live_owners(study, now=datetime.now(UTC))):
            return
        sleep(0.5)


def _trust(record: StudyRecord, job: Mapping[str, Any], args: Sequence[str], folder: Path, *, network: bool) -> None:
    """Notes the agreement to a study of another machine, if it runs just what the job says.

    Raises:
        UsageError: The stored study runs something else.
        HostError: The study's trials use the network, and neither this machine's user nor the project permits that.
    """
    flags = as_flags(check_job_options(job["options"]))
    mine = asked({**flags, "script": str(job["script"]), "study": record.name}, args, folder).spec
    if record.spec.network and not (network or mine.network):
        raise HostError(
            f"The trials of study {record.name!r} use the network, and this worker lets no trial do that.",
            "Start the workers of a team alike: all with --network, or none.",
        )
    same = replace(mine, out=record.spec.out, force=record.spec.force, storage=record.spec.storage)
    wanted = replace(record, spec=_without_permission(same))
    stored = replace(record, spec=_without_permission(record.spec))
    differences = trust_record.differences(stored, wanted)
    if differences:
        raise UsageError(
            f"The stored study {record.name!r} differs from the job: {', '.join(differences)}.", "Submit a new job."
        )
    trust_record.keep(record)


def _without_permission(spec: SearchSpec) -> SearchSpec:
    # The permissions to search without protection and with the network are each machine's own.
    return replace(spec, unprotected=False, network=False)
