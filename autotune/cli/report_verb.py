"""`autotune report`: a study as a page for people or programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import Storage, Study
from autotune.cli.place import open_repository, working_directory
from autotune.errors import StoreError, UsageError

if TYPE_CHECKING:
    from autotune.model.study_view import StudyView
    from autotune.store.repository import Repository

FORMATS = ("html", "md", "json")
EXAMPLES = """\b
Examples:
  autotune report train
  autotune report train --out show/train.html
  autotune report train --format md --out -
  autotune report train --interactive
"""


def report(
    study: Study,
    storage: Storage = None,
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="html|md|json", help="The form. [default: as --out ends, or html]"),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="PATH", help="Where it goes; - is standard output. [default: STUDY.html]"),
    ] = None,
    interactive: Annotated[
        bool, typer.Option("--interactive", help="Add Optuna's own figures, drawn by plotly: 5 MB more, and scripts.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite whatever is at --out.")] = False,
) -> int:
    """Write a study as a page with pictures.

    The page shows the course of the search, memory, each setting, stalls, all trials, and the machine.

    The HTML contains all styles and pictures and loads nothing, so the file can be mailed or archived. An existing file
    is replaced only if the file is a report.
    """
    from autotune.report.interactive import DRAW, plotly_script
    from autotune.report.streams import say, write_result

    kind = _kind(form, out)
    if interactive and kind != "html":
        raise UsageError(f"--interactive goes with html, not with {kind}.", "Leave it away, or let --out end in .html.")
    scripts = (plotly_script(), DRAW) if interactive else ()
    with open_repository(storage) as repository:
        text = _text(_told(study, repository, with_figures=interactive), kind, scripts)
    if out == "-":
        write_result(text)
        return 0
    name = out or "".join(char if char.isalnum() or char in "._-" else "_" for char in study).lstrip(".") + f".{kind}"
    _write(working_directory() / name, text, kind, force=force)
    say(f"Written: {name}")
    return 0


def _told(study: str, repository: Repository, *, with_figures: bool) -> StudyView:
    from autotune.study.view import tell

    return tell(study, repository, with_importances=True, with_figures=with_figures, on_unreadable=say_left_out)


def say_left_out(number: str, error: StoreError) -> None:
    """Reports a trial that was left out, with the reason."""
    from autotune.report.streams import say

    say(f"left out: {error.message}")


def _kind(form: str | None, out: str | None) -> str:
    ending = Path(out).suffix.lower().lstrip(".") if out not in (None, "-") else ""
    if form is None and out not in (None, "-") and ending not in FORMATS:
        raise UsageError(
            f"--out {out} does not say which form of a report it is to be.",
            "Let it end in .html, .md or .json, or name the form with --format.",
        )
    kind = form or ending or FORMATS[0]
    if kind not in FORMATS:
        raise UsageError(f"{kind!r} is not a form of a report.", f"It is one of {', '.join(FORMATS)}.")
    if ending in FORMATS and ending != kind:
        raise UsageError(f"--format {kind} and --out {out} do not go together.", f"Let the file end in .{kind}.")
    return kind


def _text(view: StudyView, kind: str, scripts: tuple[str, ...]) -> str:
    from autotune.report.document import document_text
    from autotune.report.html import page
    from autotune.report.markdown import markdown
    from autotune.report.study_page import report_document

    if kind == "json":
        return document_text(report_document(view))
    return page(view, scripts) if kind == "html" else markdown(view)


def _write(path: Path, text: str, kind: str, *, force: bool) -> None:
    """Writes the page. An existing file stays, unless the file begins like a report of this form."""
    from autotune.report.streams import masked

    beginning = text[: text.index("\n", text.index("autotune report"))].encode()
    try:
        if path.exists() and not force and not (path.is_file() and _starts_with(path, beginning)):
            hint = "Use another --out, or --force to replace it."
            raise UsageError(f"{path} is already there, and is no report of autotune in {kind}.", hint)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(masked(text), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.", "Choose another place with --out.") from error


def _starts_with(path: Path, beginning: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(beginning)) == beginning
