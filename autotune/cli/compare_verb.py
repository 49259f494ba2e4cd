"""`autotune compare`: the results of two searches, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.completion_verb import complete_study
from autotune.cli.export_verb import SUFFIXES
from autotune.cli.options import Json, Storage
from autotune.cli.place import open_repository, working_directory
from autotune.study_file.name import study_name

if TYPE_CHECKING:
    from autotune.study.comparison import Found

EXAMPLES = """\b
Examples:
  autotune compare train wider
  autotune compare before.yaml autotune.yaml
"""
_HELP = "A finished study, or a tuned config."


def compare(
    first: Annotated[str, typer.Argument(metavar="A", autocompletion=complete_study, help=_HELP)],
    second: Annotated[str, typer.Argument(metavar="B", autocompletion=complete_study, help=_HELP)],
    storage: Storage = None,
    as_json: Json = False,
) -> int:
    """Compare the results of two searches.

    Prints how many times as fast B is as A, with an interval.

    Refuses figures from different machines, versions, scripts or effective batches, and names the difference.
    """
    from autotune.report.comparison_text import comparison_document, comparison_text
    from autotune.report.document import write_document
    from autotune.report.streams import write_result
    from autotune.study.comparison import comparison

    found = comparison(_found(first, storage), _found(second, storage))
    if as_json:
        write_document(comparison_document(found))
    else:
        write_result(comparison_text(found))
    return 0


def _found(name: str, storage: str | None) -> Found:
    from autotune.emit.tuned_config import read_config
    from autotune.study.comparison import found_by_config, found_by_study

    path = working_directory() / name
    if path.suffix.lower() in SUFFIXES:
        return found_by_config(name, read_config(path))
    with open_repository(storage) as repository:
        return found_by_study(name, repository.study(study_name(name)))
