"""`autotune studies`: lists, shows and deletes the studies of a database."""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.options import Json, Storage, Study
from autotune.cli.place import open_repository
from autotune.errors import StoreError, UsageError
from autotune.units import format_age, format_rate

if TYPE_CHECKING:
    from autotune.store.records import StudyRecord
    from autotune.store.repository import Repository

SCHEMA = 1
EXAMPLES = """\b
Examples:
  autotune studies
  autotune studies show train
  autotune studies delete train
"""

LIST_EXAMPLES = """\b
Examples:
  autotune studies list
  autotune studies list --json
"""
SHOW_EXAMPLES = """\b
Examples:
  autotune studies show train
  autotune studies show train --json
"""
UPGRADE_EXAMPLES = """\b
Examples:
  autotune studies upgrade                            the database of this folder
  autotune studies upgrade --storage old.db           another one
"""
DELETE_EXAMPLES = """\b
Examples:
  autotune studies delete train
  autotune studies delete train --yes
"""

app = typer.Typer(help="List, show and delete studies.", rich_markup_mode=None, invoke_without_command=True)


@app.callback()
def _default(context: typer.Context, storage: Storage = None, as_json: Json = False) -> int:
    if context.invoked_subcommand is None:
        return list_studies(storage, as_json)
    if storage is not None or as_json:
        raise UsageError("--storage and --json go after the verb.", f"As in: {context.command_path} list --json")
    return 0


@app.command("list", epilog=LIST_EXAMPLES)
def list_studies(storage: Storage = None, as_json: Json = False) -> int:
    """List the studies in the database, the newest first.

    Each study is listed with the best samples per second, the ratio to your own settings, and the age.

    A ratio after ~ is of single trials, before any finals.
    """
    from autotune.report.document import write_document
    from autotune.report.status_text import table_text
    from autotune.report.streams import write_result
    from autotune.study.study_list import gain_text

    with open_repository(storage) as repository:
        entries = (_entry(record, repository) for record in repository.studies(_say_unreadable))
        found = [entry for entry in entries if entry is not None]
    if as_json:
        write_document({"schema": SCHEMA, "studies": found})
    elif not found:
        write_result("The database holds no study.\n")
    else:
        rows = [
            (
                entry["study"],
                "searching" if entry["is_live"] else entry["status"].replace("_", " "),
                str(entry["num_trials"]),
                _best_text(entry),
                gain_text(entry),
                format_age(entry["age_s"]),
                entry["script"],
            )
            for entry in found
        ]
        write_result(table_text(("STUDY", "STATUS", "TRIALS", "BEST", "RATIO", "AGE", "SCRIPT"), rows))
    return 0


def _say_unreadable(name: str, error: StoreError) -> None:
    from autotune.report.streams import say

    to_delete = f" To delete it: {shlex.join(['autotune', 'studies', 'delete', name])}" if name else ""
    say(f"left out: {error.message}{to_delete}")


def _best_text(entry: dict[str, Any]) -> str:
    best = entry["best_samples_per_second"]
    return f"{format_rate(best)} {entry['samples_unit']}/s" if best else "-"


def _entry(record: StudyRecord, repository: Repository) -> dict[str, Any] | None:
    """A study of the list; None for an unreadable study, after a message."""
    from autotune.study.study_list import list_entry

    try:
        return list_entry(record, repository, now=datetime.now(UTC))
    except StoreError as error:
        _say_unreadable(record.name, error)
        return None


@app.command("show", epilog=SHOW_EXAMPLES)
def show_study(study: Study, storage: Storage = None, as_json: Json = False) -> int:
    """Show the options of a study, and the end of every trial."""
    from autotune.cli.report_verb import say_left_out
    from autotune.report.document import write_document
    from autotune.report.streams import write_result
    from autotune.report.study_page import study_document, study_text
    from autotune.store.secrets import mask_text
    from autotune.study.view import tell

    with open_repository(storage) as repository:
        view = tell(study, repository, on_unreadable=say_left_out)
    if as_json:
        write_document(study_document(view))
    else:
        write_result(mask_text(study_text(view)))
    return 0


@app.command("delete", epilog=DELETE_EXAMPLES)
def delete_study(
    study: Study,
    storage: Storage = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """Delete a study with all trials. The tuned config stays."""
    from autotune.report.streams import say
    from autotune.study import removal

    with open_repository(storage, writes=True) as repository:
        status, num_trials = repository.status(study), repository.num_trials(study)
        if not yes and not _is_confirmed(study, status, num_trials):
            raise UsageError(f"Study {study!r} was not deleted.", "Answer yes, or pass --yes.")
        removal.delete_study(study, repository)
    say(f"Deleted: study {study} with {_trials_text(num_trials)}.")
    return 0


@app.command("upgrade", epilog=UPGRADE_EXAMPLES)
def upgrade(storage: Storage = None) -> int:
    """Bring the database to this release, and repair the unfinished writes of killed processes.

    Searches and resumes upgrade by themselves; verbs that only read never write.
    """
    from autotune.report.streams import write_result

    with open_repository(storage, writes=True) as repository:
        num_studies = len(repository.names())
    write_result(f"Up to date: {num_studies} {'study' if num_studies == 1 else 'studies'}.\n")
    return 0


def _trials_text(num_trials: int) -> str:
    return f"{num_trials} trial{'' if num_trials == 1 else 's'}"


def _is_confirmed(study: str, status: str, num_trials: int) -> bool:
    from autotune.report.streams import say

    say(f"Delete study {study!r} with {_trials_text(num_trials)} ({status.replace('_', ' ')})? [y/N]")
    try:
        answer = sys.stdin.readline()
    except (OSError, ValueError):
        return False
    return answer.strip().lower() in ("y", "yes")
