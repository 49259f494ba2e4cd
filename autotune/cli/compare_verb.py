"""`autotune compare`: the results of two searches, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.completion_verb import complete_study
from autotune.cli.export_verb import SUFFIXES
from autotune.cli.options import Json, Storage
from autotune.cli.place import open_repository, working_directory
from autotune.errors import UsageError
from autotune.study_file.name import study_name

if TYPE_CHECKING:
    from autotune.study.comparison import Found

EXAMPLES = """\b
Examples:
  autotune compare train wider
  autotune compare before.yaml autotune.yaml
  autotune compare before.yaml autotune.yaml --max-regression 5%
"""
REGRESSION = 9
"""Exit code for a second result slower than allowed."""
_HELP = "A finished study, a tuned config, or a log of autotune run --watch."


def compare(
    first: Annotated[str, typer.Argument(metavar="A", autocompletion=complete_study, help=_HELP)],
    second: Annotated[str, typer.Argument(metavar="B", autocompletion=complete_study, help=_HELP)],
    max_regression: Annotated[
        str | None,
        typer.Option("--max-regression", metavar="PERCENT", help="Exit with 9 when B is slower by more, such as 5%."),
    ] = None,
    storage: Storage = None,
    as_json: Json = False,
) -> int:
    """Compare the results of two searches.

    Prints how many times as fast B is as A, with an interval.

    Refuses figures from different machines, versions, scripts or effective batches, and names the difference. With
    --max-regression, exits with 9 when B is slower than A by more than the percentage, beyond the noise.
    """
    most_loss = _share(max_regression) if max_regression is not None else None
    from autotune.report.comparison_text import comparison_document, comparison_text
    from autotune.report.document import write_document
    from autotune.report.streams import write_result
    from autotune.study.comparison import comparison

    found = comparison(_found(first, storage), _found(second, storage))
    if as_json:
        write_document(comparison_document(found))
    else:
        write_result(comparison_text(found))
    return REGRESSION if most_loss is not None and found.ratio.high < 1 - most_loss else 0


def _share(percentage: str) -> float:
    """A percentage as a share, such as 0.05 for `5%`."""
    try:
        share = float(percentage.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise UsageError(f"--max-regression {percentage!r} is no percentage.", "Write it as 5%.")
    return share


def _found(name: str, storage: str | None) -> Found:
    from autotune.emit.tuned_config import read_config
    from autotune.study.comparison import found_by_config, found_by_log, found_by_study

    path = working_directory() / name
    if path.suffix.lower() == ".jsonl":
        return found_by_log(name, _text(path), read_config)
    if path.suffix.lower() in SUFFIXES:
        return found_by_config(name, read_config(path))
    with open_repository(storage) as repository:
        return found_by_study(name, repository.study(study_name(name)))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", "autotune run --watch writes a log.") from error
