"""`autotune trust`: agrees to commands and arguments from somebody else's database, study file or tuned config."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.completion_verb import complete_study
from autotune.cli.options import Storage
from autotune.cli.place import open_repository, working_directory
from autotune.errors import HostError, UsageError

if TYPE_CHECKING:
    from autotune.emit.tuned_config import TunedConfig
    from autotune.store.records import StudyRecord

SUFFIXES = (".yaml", ".yml", ".toml", ".json")
EXAMPLES = """\b
Examples:
  autotune trust
  autotune trust train
  autotune trust autotune.yaml
"""


def trust(
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="[STUDY|FILE]",
            autocompletion=complete_study,
            help="A study, or a tuned config. [default: the study file of this folder]",
        ),
    ] = None,
    storage: Storage = None,
) -> int:
    """Show what somebody else's study, tuned config or study file would run, and agree to it.

    Data is never trusted as code. A database names the command of a resume, a study file may name a server or a
    program, and a tuned config may add arguments to your script. autotune follows such data from elsewhere only after
    you agree. The agreement holds for the present content: after a change, you are asked again.
    """
    if study is None:
        return _trust_study_file()
    if Path(study).suffix.lower() in SUFFIXES and study.lower() != "study.toml":
        return _trust_config(study)
    if study.lower() == "study.toml":
        return _trust_study_file()
    from autotune.study.trust_record import keep, what_differs, what_runs, with_whole_command
    from autotune.study_file.name import study_name

    with open_repository(storage) as repository:
        record = with_whole_command(repository.study(study_name(study)))
    _show(f"study {record.name} runs this:\n{what_runs(record)}")
    keep(record)
    return _noted(is_noted=not what_differs(record))


def agreed(record: StudyRecord) -> StudyRecord:
    """The study with its whole command, after this user has agreed earlier or agrees now at a terminal's question.

    Without a terminal no question is asked; `check_trusted` refuses the study later.

    Raises:
        UsageError: The user says no, or the secret arguments of the command are unknown here.
    """
    from autotune.study.trust_record import check_trusted, keep, what_differs, with_whole_command

    record = with_whole_command(record)
    if what_differs(record) and _is_at_terminal():
        try:
            check_trusted(record)
        except UsageError as error:
            _say(error.message)
        if not _is_yes("Run it? [y/N]"):
            raise UsageError(f"Study {record.name!r} was not resumed.", "Nothing was run.")
        keep(record)
    return record


def check_config_agreed(path: Path, config: TunedConfig, shown: str) -> None:
    """Refuses somebody else's tuned config with added arguments for a script, unless the user agrees to the arguments.

    Args:
        path: The config's file.
        config: Content of the file.
        shown: The file as the user named it.

    Raises:
        UsageError: The user has not agreed before, and says no or cannot be asked at a terminal.
    """
    from autotune.emit.agreed_arguments import added_arguments, agree, check_agreed

    try:
        check_agreed(path, config, shown)
    except UsageError as error:
        if not _is_at_terminal():
            raise
        _say(error.message)
        if not _is_yes("Run with them? [y/N]"):
            raise
        agree(path, added_arguments(config))


def _trust_study_file() -> int:
    from autotune.study_file.agreed_values import agree, leading_outside
    from autotune.study_file.study_toml import find_study_file

    file = find_study_file(working_directory(), os.environ)
    if file is None:
        raise UsageError("There is no study file here.", "Name a study, or a tuned config: autotune trust train")
    outside = leading_outside(file)
    if not outside:
        _show(f"{file.label} names nothing outside its folder and keeps files protected: it needs no agreement.")
        return 0
    _show(f"{file.label} names this outside its folder, or leaves files unprotected:")
    for key, text in outside.items():
        _show(f"  {key} = {text}")
    return _noted(is_noted=agree(file))


def _trust_config(name: str) -> int:
    from autotune.emit.agreed_arguments import added_arguments, agree
    from autotune.emit.tuned_config import read_config

    path = working_directory() / name
    arguments = added_arguments(read_config(path))
    if not arguments:
        _show(f"{name} adds no arguments to a script: it needs no agreement.")
        return 0
    _show(f"{name} adds these arguments to a script: {shlex.join(arguments)}")
    return _noted(is_noted=agree(path, arguments))


def _noted(*, is_noted: bool) -> int:
    if not is_noted:
        raise HostError(
            "The agreement cannot be noted in your state folder.", "Set XDG_STATE_HOME to a folder of your own."
        )
    _show("Trusted, as it is now.")
    return 0


def _is_at_terminal() -> bool:
    try:
        return sys.stdin.isatty() and sys.stderr.isatty()
    except ValueError:
        return False


def _is_yes(question: str) -> bool:
    _say(question)
    try:
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except (OSError, ValueError):
        return False


def _show(text: str) -> None:
    from autotune.report.streams import printable, write_result
    from autotune.store.secrets import mask_text

    write_result(f"{printable(mask_text(text))}\n")


def _say(text: str) -> None:
    from autotune.report.streams import say
    from autotune.store.secrets import mask_text

    say(mask_text(text))
