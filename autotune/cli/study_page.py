"""One stored study as a page for people and as a document; secrets are masked."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC
from typing import Any

from autotune.cli.standing import baseline_of
from autotune.model.result import TrialResult
from autotune.report.lines import HEADER, facts_words, trial_line
from autotune.report.parts import parts_text, seconds_by_part
from autotune.report.words import clean, refused_words
from autotune.store.records import FinalRecord, StudyRecord, TrialRecord
from autotune.store.secrets import mask_text, masked_command
from autotune.store.url import mask_url
from autotune.units import format_bytes, format_seconds

SCHEMA = 1


def study_text(
    record: StudyRecord, trials: Sequence[TrialRecord], finals: Sequence[FinalRecord], *, is_live: bool
) -> str:
    """The study for people: what was asked, what the script is, where the time went, and one line per trial."""
    spec = record.spec
    lines = [
        f"study {clean(record.name)}: {'searching' if is_live else record.status}",
        f"  command  {clean(shlex.join(masked_command(spec)))}",
        f"  in       {clean(spec.cwd)}",
        f"  created  {record.created_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
        f"  spent    {format_seconds(record.spent_s)} of {format_seconds(spec.budget_s)}",
    ]
    if record.memory_cap_bytes is not None:
        lines.append(f"  cap      {format_bytes(record.memory_cap_bytes)}")
    if record.facts is not None and record.natural is not None:
        lines.append(f"  script   {clean(facts_words(record.facts, record.natural))}")
    parts = parts_text(_results(trials, finals))
    if parts:
        lines.append(f"  trials   {clean(parts)}")
    lines += [f"  left out {words}" for words in refused_words(record.refused)]
    if trials:
        baseline = baseline_of(record, trials)
        measured = baseline.result.measurement if baseline is not None else None
        lines += ["", HEADER]
        lines += [
            trial_line(
                trial.number,
                trial.settings,
                trial.result,
                baseline=baseline.settings if baseline is not None else record.natural,
                baseline_rate=measured.samples_per_second if measured is not None else None,
            )
            for trial in trials
        ]
    return mask_text("\n".join(lines)) + "\n"


def study_document(
    record: StudyRecord, trials: Sequence[TrialRecord], finals: Sequence[FinalRecord], *, is_live: bool
) -> dict[str, Any]:
    """The study as plain values for `--json`."""
    spec = record.spec
    return {
        "schema": SCHEMA,
        "study": record.name,
        "status": record.status,
        "is_live": is_live,
        "created_at": record.created_at.astimezone(UTC).isoformat(timespec="seconds"),
        "command": list(masked_command(spec)),
        "cwd": spec.cwd,
        "storage": mask_url(spec.storage),
        "memory_cap_bytes": record.memory_cap_bytes,
        "max_trials": spec.max_trials,
        "budget_s": spec.budget_s,
        "spent_s": record.spent_s,
        "seconds_by_part": seconds_by_part(_results(trials, finals)),
        "natural": record.natural.to_dict() if record.natural is not None else None,
        "refused": dict(record.refused),
        "trials": [_trial_document(trial) for trial in trials],
        "result": record.result,
    }


def _results(trials: Sequence[TrialRecord], finals: Sequence[FinalRecord]) -> list[TrialResult]:
    return [*(trial.result for trial in trials), *(final.result for final in finals)]


def _trial_document(trial: TrialRecord) -> dict[str, Any]:
    result, measurement = trial.result, trial.result.measurement
    return {
        "number": trial.number,
        "attempt": trial.attempt,
        "stage": trial.stage,
        "outcome": result.outcome.value,
        "reason": mask_text(result.reason),
        "settings": trial.settings.to_dict(),
        "samples_per_second": measurement.samples_per_second if measurement is not None else None,
        "interval": [measurement.low, measurement.high] if measurement is not None else None,
        "data_wait_fraction": measurement.data_wait_fraction if measurement is not None else None,
        "peak_memory_bytes": result.peak_memory_bytes,
        "wall_s": result.wall_s,
        "durations_s": dict(result.durations_s),
        "start": result.start,
        "start_reason": mask_text(result.start_reason),
    }
