"""Trials and finals as stored, as plain data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from autotune.model.checks import check_aware
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialEnding:
    """How one trial ended, without the figures."""

    number: int
    """Optuna's number of the trial, from 0."""
    settings: Settings
    stage: str
    """Origin of the settings: the stage of the plan, or `sampled`."""
    outcome: Outcome
    failure: TrialResult | None = None
    """Result of a failed trial; None for every other outcome."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRecord:
    """One finished or interrupted trial."""

    number: int
    """Optuna's number of the trial, from 0."""
    settings: Settings
    stage: str
    """Origin of the settings: the stage of the plan, or `sampled`."""
    result: TrialResult
    started_at: datetime
    finished_at: datetime
    environment: dict[str, str] = field(default_factory=dict)
    """Variables of the trial; `secrets.allowed_environment` drops most variables before storing."""
    attempt: int = 1
    """1 for the first run of the settings, more after an interruption."""
    optuna_told: bool
    """Whether Optuna has this outcome; a resume tells Optuna all missing outcomes."""

    def __post_init__(self) -> None:
        """Refuses impossible trials."""
        check_aware("started_at", self.started_at)
        check_aware("finished_at", self.finished_at)
        if self.number < 0 or self.attempt < 1:
            raise ValueError(f"a trial's number is at least 0 and its attempt 1, not {self.number} and {self.attempt}")

    @property
    def ending(self) -> TrialEnding:
        """The ending of the trial."""
        return TrialEnding(
            number=self.number,
            settings=self.settings,
            stage=self.stage,
            outcome=self.result.outcome,
            failure=self.result if self.result.outcome.is_failed else None,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class FinalRecord:
    """One run of the finals."""

    round: int
    """From 0; within one round every finalist runs once."""
    number: int
    """Number of the finalist's trial."""
    settings: Settings
    result: TrialResult
    finished_at: datetime

    def __post_init__(self) -> None:
        """Refuses impossible finals."""
        check_aware("finished_at", self.finished_at)
        if self.round < 0 or self.number < 0:
            raise ValueError(f"a final's round and number are at least 0, not {self.round} and {self.number}")


def finals_before_latest(trials: Iterable[TrialRecord], finals: Iterable[FinalRecord]) -> tuple[FinalRecord, ...]:
    """The runs of finals that ended before the latest trial; finals after more trials have other contenders."""
    latest = max((trial.finished_at for trial in trials), default=None)
    return tuple(final for final in finals if latest is not None and final.finished_at < latest)


def results_of_runs(trials: Iterable[TrialRecord], finals: Iterable[FinalRecord]) -> tuple[TrialResult, ...]:
    """Results of all runs of the script, each once: the first round of the finals may be the trials themselves."""
    of_trials = {trial.number: trial.result for trial in trials}
    of_finals = (final.result for final in finals if not _is_same_run(final.result, of_trials.get(final.number)))
    return (*of_trials.values(), *of_finals)


def _is_same_run(final: TrialResult, trial: TrialResult | None) -> bool:
    """Whether a final and a trial are the same run; the trial may lack the reports of the ranks."""
    return trial is not None and replace(final, ranks=()) == replace(trial, ranks=())
