"""One stored study as a page of text for people, and as a document. Pure."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Any

from autotune.model.study_view import StudyStory, TrialStory
from autotune.plain import to_plain
from autotune.report.effects import effects
from autotune.report.event_stream import result_document
from autotune.report.lines import facts_words, header, trial_line
from autotune.report.parts import parts_text, seconds_by_part
from autotune.report.pictures import pareto
from autotune.report.summary_text import headline
from autotune.report.words import clean, left_out_words, refused_words
from autotune.units import format_bytes, format_seconds

SCHEMA = 1


def study_text(story: StudyStory) -> str:
    """The study for people: what was asked, what the script is, where the time went, and one line per trial."""
    lines = [
        f"study {clean(story.study)}: {'searching' if story.is_live else story.status.replace('_', ' ')}",
        f"  command  {clean(shlex.join(story.command))}",
        f"  in       {clean(story.cwd)}",
        f"  created  {story.created_at:%Y-%m-%d %H:%M} UTC",
        f"  spent    {format_seconds(story.spent_s)} of {format_seconds(story.budget_s)}",
    ]
    if story.memory_cap_bytes is not None:
        lines.append(f"  cap      {format_bytes(story.memory_cap_bytes)}")
    if story.facts is not None and story.natural is not None:
        lines.append(f"  script   {clean(facts_words(story.facts, story.natural))}")
    if story.is_final:
        lines.append(f"  result   {headline(story.result)}")
    parts = parts_text(story.results)
    if parts:
        lines.append(f"  trials   {clean(parts)}")
    lines += [f"  left out {words}" for words in refused_words(story.refused)]
    lines += [f"  {clean(words)}" for words in left_out_words(story.result.left_out)]
    if story.trials:
        baseline = story.baseline
        lines += ["", header(story.result.samples_unit)]
        lines += [
            trial_line(
                trial.number,
                trial.settings,
                trial.result,
                baseline=baseline.settings if baseline is not None else story.natural,
                baseline_rate=story.baseline_rate,
            )
            for trial in story.trials
        ]
    return "\n".join(lines) + "\n"


def study_document(story: StudyStory) -> dict[str, Any]:
    """The study as plain values for `--json`."""
    return {
        "schema": SCHEMA,
        "study": story.study,
        "status": story.status,
        "is_live": story.is_live,
        "created_at": story.created_at.isoformat(timespec="seconds"),
        "command": list(story.command),
        "script": story.script,
        "cwd": story.cwd,
        "storage": story.storage,
        "memory_cap_bytes": story.memory_cap_bytes,
        "max_trials": story.max_trials,
        "budget_s": story.budget_s,
        "spent_s": story.spent_s,
        "seconds_by_part": seconds_by_part(story.results),
        "natural": story.natural.to_dict() if story.natural is not None else None,
        "refused": dict(story.refused),
        "trials": [_trial_document(trial) for trial in story.trials],
        "result": story.result.document() if story.is_final else None,
    }


def report_document(story: StudyStory) -> dict[str, Any]:
    """The study as `autotune report --format json` gives it: with what the page draws."""
    baseline = story.baseline
    return {
        "autotune report": SCHEMA,
        **study_document(story),
        "is_final": story.is_final,
        "result": story.result.document(),
        "effective_batch": story.effective_batch,
        "baseline_trial": story.baseline_number,
        "best_trial": story.best_number,
        "pareto_trials": [trial.number for trial in pareto(story.trials)],
        "importances": dict(story.importances),
        "effects": [asdict(effect) for effect in effects(story.trials, baseline.settings)] if baseline else [],
        "stalls": {
            "before": to_plain(story.before) if story.before is not None else None,
            "after": to_plain(story.after) if story.after is not None else None,
        },
        "finals": [
            {"round": final.round, **result_document(final.result), "trial": final.number} for final in story.finals
        ],
        "machine": dict(story.machine),
        "environment": story.environment,
    }


def _trial_document(trial: TrialStory) -> dict[str, Any]:
    return {
        "number": trial.number,
        "attempt": trial.attempt,
        "stage": trial.stage,
        "started_at": trial.started_at.isoformat(timespec="seconds"),
        "settings": trial.settings.to_dict(),
        **result_document(trial.result),
    }
