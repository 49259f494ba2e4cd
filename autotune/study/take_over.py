"""Takes trials of an older study over into a new study of the same script on the same machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autotune.errors import UsageError
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.model.trial_records import TrialRecord
from autotune.search.study_search import Search
from autotune.store.records import StudyRecord
from autotune.store.repository import Repository
from autotune.study.fingerprint import what_changed
from autotune.units import format_bytes


def check_can_be_taken_over(old: StudyRecord, fingerprint: Mapping[str, Any]) -> None:
    """Refuses to take over trials measured under other circumstances.

    Args:
        old: The older study.
        fingerprint: Fingerprint of the new study.

    Raises:
        UsageError: The circumstances differ; the message names the changes.
    """
    stored = {name: value for name, value in old.fingerprint.items() if name != "space"}
    changes = what_changed(stored, fingerprint)
    if changes:
        raise UsageError(
            f"Nothing of study {old.name!r} can be taken over, because its trials would not be comparable: "
            f"{'; '.join(changes)}.",
            "Leave out --take-over.",
        )


def take_over(old: StudyRecord, study: str, search: Search, repository: Repository, cap_bytes: int) -> tuple[int, int]:
    """Adds the fitting trials of an older study to a new study, each once; returns the numbers taken and left.

    Args:
        old: The older study.
        study: Name of the new study.
        search: Search of the new study.
        repository: Place of both studies.
        cap_bytes: Memory cap of the new study.
    """
    num_taken = num_left = 0
    for trial in repository.trials(old.name):
        result = under_cap(trial.result, cap_bytes, old.memory_cap_bytes)
        source = f"{old.name}/{trial.number}"
        number = None
        if result is not None:
            number = search.take_over(trial.settings, trial.stage, result, source=source)
        if result is None or number is None:
            num_left += 1
            continue
        num_taken += 1
        repository.record_trial(study, _taken(trial, number, result, source))
    return num_taken, num_left


def under_cap(result: TrialResult, cap_bytes: int, old_cap_bytes: int | None) -> TrialResult | None:
    """The result of a trial under another memory cap; None when unknown."""
    match result.outcome:
        case Outcome.INTERRUPTED:
            return None
        case Outcome.OVER_CAP | Outcome.OUT_OF_MEMORY:
            return result if old_cap_bytes is not None and cap_bytes <= old_cap_bytes else None
        case _:
            peak = result.peak_memory_bytes
            if peak is None or peak <= cap_bytes:
                return result
            reason = f"It held {format_bytes(peak)}, the cap is {format_bytes(cap_bytes)}."
            return replace(result, outcome=Outcome.OVER_CAP, reason=reason, measurement=None)


def _taken(trial: TrialRecord, number: int, result: TrialResult, source: str) -> TrialRecord:
    note = f"Measured as trial {source}."
    return replace(
        trial, number=number, result=replace(result, notes=(*result.notes, note)), attempt=1, optuna_told=True
    )
