"""A study as Markdown: for an issue, a pull request or a notebook. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from autotune.model.study_view import StudyView
from autotune.report.lines import facts_words
from autotune.report.parts import parts_text
from autotune.report.summary_text import INDENT, headline, memory_lines, worth_lines
from autotune.report.text_tables import change_rows, figure_rows, final_rows, machine_rows, trial_cells
from autotune.report.usage_text import usage_rows, why_less
from autotune.report.words import bottleneck_text, clean, refused_words

MARK = "<!-- autotune report -->"
"""First line of every page of ours; a file with it may be replaced."""
_SPECIAL = re.compile(r"([\\`*_\[\]<>|#])")


def markdown(view: StudyView) -> str:
    """The study in GitHub's Markdown: the answer, the changes, the time by part, and all trials."""
    return "\n".join([MARK, *_lines(view)]) + "\n"


def _lines(view: StudyView) -> Iterator[str]:
    yield f"# autotune: study {_words(view.study)}"
    yield ""
    yield _words(headline(view.result)) if view.is_final else "This search has not ended: figures of single trials."
    yield ""
    yield from (f"- {_words(value)} {_words(name)}" for name, value in figure_rows(view))
    yield from _bound(view)
    changes = list(change_rows(view))
    if changes:
        yield from _table("What changed", ("setting", "yours", "best"), changes)
        yield ""
        for line in worth_lines(view.result):
            yield f"- {_words(line)}" if line.startswith(INDENT) else f"{_words(line)}\n"
    usage = list(usage_rows(view.result))
    if usage:
        yield from _table("Use of the machine", ("", "yours", "best"), usage)
    yield from (f"\n{_words(line)}" for line in (*memory_lines(view.result), why_less(view.result)) if line)
    yield from (f"\nNote: {_words(note)}" for note in view.result.notes)
    parts = parts_text(view.results)
    if parts:
        yield f"\nThe trials: {_words(parts)}."
    finals = list(final_rows(view))
    unit = f"{view.result.samples_unit}/s"
    if finals:
        yield from _table("Finals", ("round", "trial", unit, "memory", "waits", "ending"), finals)
    figures = (unit, "ratio", "memory", "waits", "took", "start")
    header = ("trial", "ending", *figures, "settings that differ from yours", "reason")
    rows = [(*trial_cells(view, trial), trial.result.why) for trial in view.trials]
    if rows:
        yield from _table("All trials", header, rows)
    yield from _circumstances(view)


def _bound(view: StudyView) -> Iterator[str]:
    after = view.after if view.best_number != view.baseline_number else None
    for who, found in (("Your settings are", view.before), ("The best are", after)):
        words = bottleneck_text(found.kind) if found is not None else ""
        if words:
            yield f"- {who} bound by {words}"


def _circumstances(view: StudyView) -> Iterator[str]:
    yield "\n## What was searched\n"
    yield f"- command: {_words(shlex.join(view.command))}"
    if view.facts is not None and view.script_settings is not None:
        yield f"- script: {_words(facts_words(view.facts, view.script_settings))}"
    yield f"- effective batch: {_words(view.effective_batch)}"
    yield from (f"- left out: {_words(words)}" for words in refused_words(view.refused))
    yield from _table("Machine and environment", ("what", "value"), [*machine_rows(view), *view.environment.items()])


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"\n## {title}\n"
    yield _row([_words(name) for name in header])
    yield _row(["---"] * len(header))
    yield from (_row([_words(cell) for cell in row]) for row in rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _words(text: str) -> str:
    """The text on one line, with the special characters of Markdown and HTML escaped."""
    return _SPECIAL.sub(r"\\\1", clean(text)).replace("\\<", "&lt;").replace("\\>", "&gt;")
