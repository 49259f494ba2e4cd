"""One stored study as a page of text for people, and as a document. Pure."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Any

from autotune.model.study_view import StudyView
from autotune.model.trial_records import TrialRecord
from autotune.protocol.codec import to_plain
from autotune.report.effects import effects
from autotune.report.event_stream import result_document
from autotune.report.lines import facts_words, header, trial_line
from autotune.report.parts import parts_text, seconds_by_part
from autotune.report.pictures import pareto
from autotune.report.summary_text import headline
from autotune.report.verification_text import latest_lines
from autotune.report.words import clean, left_out_words, refused_words
from autotune.units import format_bytes, format_seconds

SCHEMA = 1


def study_text(view: StudyView) -> str:
    """The study for people: command, script, time by part, and one line per trial."""
    lines = [
        f"study {clean(view.study)}: {'searching' if view.is_live else view.status.replace('_', ' ')}",
        f"  command  {clean(shlex.join(view.command))}",
        f"  in       {clean(view.cwd)}",
        f"  created  {view.created_at:%Y-%m-%d %H:%M} UTC",
        f"  spent    {format_seconds(view.spent_s)} of {format_seconds(view.budget_s)}",
    ]
    if view.memory_cap_bytes is not None:
        lines.append(f"  cap      {format_bytes(view.memory_cap_bytes)}")
    if view.facts is not None and view.script_settings is not None:
        lines.append(f"  script   {clean(facts_words(view.facts, view.script_settings))}")
    if view.is_final:
        lines.append(f"  result   {headline(view.result)}")
        lines += [f"  {words}" for words in latest_lines(view.result)]
    parts = parts_text(view.results)
    if parts:
        lines.append(f"  trials   {clean(parts)}")
    lines += [f"  left out {words}" for words in refused_words(view.refused)]
    lines += [f"  {clean(words)}" for words in left_out_words(view.result.left_out)]
    if view.trials:
        baseline = view.baseline
        lines += ["", header(view.result.samples_unit)]
        lines += [
            trial_line(
                trial.number,
                trial.settings,
                trial.result,
                baseline=baseline.settings if baseline is not None else view.script_settings,
                baseline_rate=view.baseline_rate,
            )
            for trial in view.trials
        ]
    return "\n".join(lines) + "\n"


def study_document(view: StudyView) -> dict[str, Any]:
    """The study as plain values for `--json`."""
    return {
        "schema": SCHEMA,
        "study": view.study,
        "status": view.status,
        "is_live": view.is_live,
        "created_at": view.created_at.isoformat(timespec="seconds"),
        "command": list(view.command),
        "script": view.script,
        "cwd": view.cwd,
        "storage": view.storage,
        "memory_cap_bytes": view.memory_cap_bytes,
        "max_trials": view.max_trials,
        "budget_s": view.budget_s,
        "spent_s": view.spent_s,
        "seconds_by_part": seconds_by_part(view.results),
        "natural": view.script_settings.to_dict() if view.script_settings is not None else None,
        "refused": dict(view.refused),
        "trials": [_trial_document(trial) for trial in view.trials],
        "result": view.result.document() if view.is_final else None,
    }


def report_document(view: StudyView) -> dict[str, Any]:
    """The study for `autotune report --format json`, with the data of the pictures."""
    baseline = view.baseline
    return {
        "autotune report": SCHEMA,
        **study_document(view),
        "is_final": view.is_final,
        "result": view.result.document(),
        "effective_batch": view.effective_batch,
        "baseline_trial": view.baseline_number,
        "best_trial": view.best_number,
        "pareto_trials": [trial.number for trial in pareto(view.trials)],
        "importances": dict(view.importances),
        "effects": [asdict(effect) for effect in effects(view.trials, baseline.settings)] if baseline else [],
        "stalls": {
            "before": to_plain(view.before) if view.before is not None else None,
            "after": to_plain(view.after) if view.after is not None else None,
        },
        "finals": [
            {"round": final.round, **result_document(final.result), "trial": final.number} for final in view.finals
        ],
        "machine": dict(view.machine),
        "environment": view.environment,
    }


def _trial_document(trial: TrialRecord) -> dict[str, Any]:
    return {
        "number": trial.number,
        "attempt": trial.attempt,
        "stage": trial.stage,
        "started_at": trial.started_at.isoformat(timespec="seconds"),
        "settings": trial.settings.to_dict(),
        **result_document(trial.result),
    }
