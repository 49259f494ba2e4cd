"""Tells the state of a stored study: the result, or the figures of the trials before a result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from autotune.model.facts import samples_unit
from autotune.model.outcome import Outcome
from autotune.model.search_result import Contender, LeftOut, SearchResult, Status, TrialCounts
from autotune.model.trial_records import TrialRecord
from autotune.settings import Settings
from autotune.store.records import StudyRecord, TrialOverview
from autotune.store.repository import Repository
from autotune.study.left_out import left_out_of
from autotune.study.protection_record import weakest

RUNNING = "running"


def own_settings(record: StudyRecord) -> Settings | None:
    """The script's own settings in canonical form; None before the probe."""
    device_is_cpu = record.facts is not None and record.facts.device == "cpu"
    return record.script_settings.canonical(device_is_cpu=device_is_cpu) if record.script_settings is not None else None


def overview_in(repository: Repository, record: StudyRecord) -> TrialOverview:
    """An overview of a study's trials, without reading all trials."""
    return repository.overview(record.name, own_settings(record))


def overview_of(record: StudyRecord, trials: Sequence[TrialRecord]) -> TrialOverview:
    """An overview of trials read before."""
    outcomes = Counter(trial.result.outcome for trial in trials)
    return TrialOverview(outcomes=outcomes, baseline=baseline_of(record, trials), best=best_of(trials))


def baseline_of(record: StudyRecord, trials: Sequence[TrialRecord]) -> TrialRecord | None:
    """The trial of the script's own settings, the latest of several attempts; None before the first attempt."""
    script_settings = own_settings(record)
    return next((trial for trial in reversed(trials) if trial.settings == script_settings), None)


def best_of(trials: Sequence[TrialRecord]) -> TrialRecord | None:
    """The fastest trial measured in full under the memory cap; None without such a trial."""
    measured = [trial for trial in trials if trial.result.outcome is Outcome.OK and trial.result.measurement]
    return max(measured, key=_rate, default=None)


def _rate(trial: TrialRecord) -> float:
    return trial.result.measurement.samples_per_second if trial.result.measurement is not None else 0.0


def is_final(record: StudyRecord) -> bool:
    """Whether the study has ended with a result; an interrupted study has not."""
    return record.status not in (RUNNING, Status.INTERRUPTED.value) and record.result is not None


def left_out_in(repository: Repository, record: StudyRecord, trials: TrialOverview) -> tuple[LeftOut, ...]:
    """The settings left out so far by a study without a result; endings are read only after a failed trial."""
    has_failed = any(num and outcome.is_failed for outcome, num in trials.outcomes.items())
    if is_final(record) or not has_failed:
        return ()
    return left_out_of(record, repository.endings(record.name))


def status_result(record: StudyRecord, trials: TrialOverview, left_out: tuple[LeftOut, ...] = ()) -> SearchResult:
    """The stored result; before a result, figures of single trials in the same form, without a speedup.

    Args:
        record: The study.
        trials: Overview of the study's trials.
        left_out: Settings left out so far by a study without a result.
    """
    if is_final(record) and record.result is not None:
        return SearchResult.from_document(record.result)
    outcomes, baseline, best = trials.outcomes, trials.baseline, trials.best
    return SearchResult(
        study=record.name,
        status=Status.INTERRUPTED,
        baseline=_contender(baseline) if baseline is not None else None,
        best=_contender(best) if best is not None else None,
        speedup=None,
        bottleneck="unknown",
        bottleneck_after="unknown",
        data_wait_fraction=None,
        ceiling_samples_per_second=None,
        trials=TrialCounts(
            complete=sum(num for outcome, num in outcomes.items() if outcome.is_complete),
            infeasible=sum(num for outcome, num in outcomes.items() if outcome.is_infeasible),
            failed=sum(num for outcome, num in outcomes.items() if outcome.is_failed),
        ),
        memory_cap_bytes=record.memory_cap_bytes or 0,
        wall_s=record.spent_s,
        measuring_s=0.0,
        config=None,
        samples_unit=samples_unit(record.facts, record.spec.samples_per_step),
        left_out=left_out,
        protection=weakest(trial.result for trial in (baseline, best) if trial is not None),
    )


def status_document(record: StudyRecord, trials: TrialOverview, left_out: tuple[LeftOut, ...] = ()) -> dict[str, Any]:
    """The document of `search --json` for a study in any state, with `is_final` added.

    While `is_final` is false, rates and intervals are those of single trials, and `status` may be `running`.
    """
    document = status_result(record, trials, left_out).document()
    return {**document, "status": record.status, "is_final": is_final(record)}


def _contender(trial: TrialRecord) -> Contender:
    measurement = trial.result.measurement
    is_measured = measurement is not None and trial.result.outcome is Outcome.OK
    return Contender(
        trial=trial.number,
        settings=trial.settings,
        feasible=not trial.result.outcome.is_infeasible,
        samples_per_second=measurement.samples_per_second if measurement is not None and is_measured else None,
        interval=(measurement.low, measurement.high) if measurement is not None and is_measured else None,
        peak_memory_bytes=trial.result.peak_memory_bytes,
    )
