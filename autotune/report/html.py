"""A study as one self-contained HTML page with its style and pictures, and scripts only on request.

The page is built as a tree of elements and written at once, with every text and attribute escaped. The page's own
policy forbids loading anything.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from importlib.resources import files
from xml.etree.ElementTree import Element, tostring

from autotune.model.study_view import StudyView
from autotune.model.trial_records import TrialRecord
from autotune.report.interactive import interactive_figures, policy
from autotune.report.lines import facts_words
from autotune.report.pictures import MARKS, Picture, kind_of, pictures, setting_pictures
from autotune.report.summary_text import INDENT, headline, memory_lines, worth_lines
from autotune.report.svg import canvas, element, glyph
from autotune.report.text_tables import change_rows, effect_rows, figure_rows, final_rows, machine_rows, trial_cells
from autotune.report.usage_text import usage_rows, why_less
from autotune.report.words import clean, refused_words

MARK = "<!-- autotune report -->"
"""First line of every page of ours; a file with it may be replaced."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
MAX_LOG_CHARS = 4000
"""Most characters shown of a failed trial's last output."""
NUMBER_COLUMNS = ("trial", "samples/s", "steps/s", "ratio", "memory", "waits", "took", "round")


def page(view: StudyView, scripts: Sequence[str] = ()) -> str:
    """The page, as text in UTF-8.

    Args:
        view: The study.
        scripts: The only scripts allowed to run, which draw the interactive figures.
    """
    allowed = f"{POLICY}; {policy(scripts)}" if scripts else POLICY
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=allowed),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"autotune: {view.study}"),
        _style(),
    )
    figures = interactive_figures(view.figures, scripts) if scripts and view.figures else ()
    root = element("html", head, element("body", *content(view, tuple(figures))), lang="en")
    return f"<!DOCTYPE html>\n{MARK}\n" + tostring(root, encoding="unicode", method="html") + "\n"


def content(view: StudyView, figures: Sequence[Element] = ()) -> Iterator[Element]:
    """The parts of the page's body, which need the style sheet `page.css`; `figures` follow our own pictures."""
    yield from (*_top(view), *_pictures(view), *figures, *_tables(view), *_circumstances(view))


def _style() -> Element:
    node = Element("style")
    node.text = files("autotune.report").joinpath("page.css").read_text(encoding="utf-8")
    return node


def _top(view: StudyView) -> Iterator[Element]:
    state = "searching" if view.is_live else view.status.replace("_", " ")
    yield element(
        "p", f"autotune, study {view.study}, {state}, begun {view.created_at:%Y-%m-%d %H:%M} UTC", class_="kicker"
    )
    yield element(
        "h1", headline(view.result) if view.is_final else "This search has not ended: figures of single trials."
    )
    if view.effective_batch != "fixed":
        words = f"The effective batch was not held fixed ({view.effective_batch}): another batch trains differently."
        yield element("p", words)
    tiles = (
        element("div", element("b", value), element("span", name), class_="tile") for name, value in figure_rows(view)
    )
    yield element("div", *tiles, class_="tiles")
    changes = list(change_rows(view))
    if changes:
        yield element("h2", "What changed")
        yield _table(("setting", "yours", "best"), changes)
        for line in worth_lines(view.result):
            yield element("p", line, class_="factor" if line.startswith(INDENT) else "")
    usage = list(usage_rows(view.result))
    if usage:
        yield element("h2", "Use of the machine")
        yield _table(("", "yours", "best"), usage)
    yield from (element("p", line) for line in (*memory_lines(view.result), why_less(view.result)) if line)
    for note in view.result.notes:
        yield element("p", f"Note: {note}", class_="note-text")


def _pictures(view: StudyView) -> Iterator[Element]:
    drawn = [_figure(picture) for picture in pictures(view)]
    if drawn:
        yield element("h2", "Pictures")
        yield element("div", *drawn, class_="pictures")
    small = [_figure(picture) for picture in setting_pictures(view)]
    if small:
        yield element("h2", "Each setting")
        words = "Every trial by its value of the setting, whatever its other settings; the ring marks the best."
        yield element("p", words, class_="caption")
        yield element("div", *small, class_="pictures small")
    rows = list(effect_rows(view))
    if rows:
        yield element("h2", "What a single change did")
        words = (
            "Pairs of trials that differ in one setting only. The range spans the pairs; it is no confidence interval."
        )
        yield element("p", words, class_="caption")
        yield _table(("setting", "change", "ratio of the rates"), rows)


def _figure(picture: Picture) -> Element:
    legend = [element("li", _glyph(kind), MARKS[kind]) for kind in picture.kinds]
    return element(
        "figure",
        element("h3", picture.title),
        picture.drawing,
        element("ul", *legend, class_="legend") if legend else None,
        element("figcaption", picture.caption, class_="caption") if picture.caption else None,
    )


def _glyph(kind: str) -> Element:
    drawing = canvas(MARKS[kind], 12, 12)
    is_part = kind in ("training", "waiting", "losing")
    part = element("rect", x=1.0, y=1.0, width=10.0, height=10.0, class_=f"part {kind}") if is_part else None
    drawing.append(part if part is not None else glyph(kind, 6.0, 6.0))
    return drawing


def _tables(view: StudyView) -> Iterator[Element]:
    unit = f"{view.result.samples_unit}/s"
    finals = list(final_rows(view))
    if finals:
        yield element("h2", "Finals")
        yield _table(("round", "trial", unit, "memory", "waits", "ending"), finals)
    if view.trials:
        yield element("h2", "All trials")
        header = (
            "trial",
            "ending",
            unit,
            "ratio",
            "memory",
            "waits",
            "took",
            "start",
            "settings that differ from yours",
        )
        rows = [_trial_row(view, trial) for trial in view.trials]
        yield _scrolled(header, rows, "wide")


def _trial_row(view: StudyView, trial: TrialRecord) -> Element:
    number, ending, *figures, start, changes = trial_cells(view, trial)
    kind = kind_of(trial.result.outcome)
    last = element("td", changes, class_="wide")
    if trial.result.reason:
        last.append(element("div", trial.result.why, class_="caption"))
    if kind == "failed" and trial.result.log_tail.strip():
        last.append(element("details", element("summary", "what it printed last"), _log(trial.result.log_tail)))
    cells = [
        element("td", number, class_="number"),
        element("td", ending, class_=f"outcome {kind}"),
        *(element("td", figure, class_="number") for figure in figures),
        element("td", start, title=trial.result.start_reason),
        last,
    ]
    return element("tr", *cells, class_="best" if trial.number == view.best_number else "")


def _log(text: str) -> Element:
    """Printed lines, each without control characters."""
    node = Element("pre")
    node.text = "\n".join(clean(line) for line in text[-MAX_LOG_CHARS:].splitlines())
    return node


def _circumstances(view: StudyView) -> Iterator[Element]:
    yield element("h2", "What was searched")
    yield element("p", shlex.join(view.command), class_="command")
    if view.facts is not None and view.script_settings is not None:
        yield element("p", facts_words(view.facts, view.script_settings))
    left_out = [element("li", words) for words in refused_words(view.refused)]
    if left_out:
        yield element("h3", "Left out of the search")
        yield element("ul", *left_out)
    yield element("h2", "Machine and environment")
    yield _table(("what", "value"), [*machine_rows(view), ("folder", view.cwd), ("database", view.storage)])
    if view.environment:
        yield element("h3", "Variables of the trials that change speed")
        yield _table(("variable", "value"), list(view.environment.items()))


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Element:
    return _scrolled(
        header,
        [
            element("tr", *(element("td", cell, class_=_column(name)) for name, cell in zip(header, row, strict=True)))
            for row in rows
        ],
    )


def _scrolled(header: Sequence[str], rows: Sequence[Element], class_: str = "narrow") -> Element:
    names = element("tr", *(element("th", name, class_=_column(name)) for name in header))
    table = element("table", element("thead", names), element("tbody", *rows), class_=class_)
    return element("div", table, class_="scroll")


def _column(name: str) -> str:
    return "number" if name in NUMBER_COLUMNS else ""
