"""Events that the tuner sends to its subscribers: the terminal, a log, later a service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotune.model.facts import ArgumentFacts, ScriptFacts
from autotune.model.gauges import Gauges
from autotune.model.result import TrialResult
from autotune.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchStarted:
    """A search begins or resumes."""

    study: str
    script: str
    machine: str
    memory_cap_bytes: int
    max_trials: int | None
    budget_s: float
    num_finished: int
    """Trials finished by earlier runs of the same study."""
    storage: str
    """Database URL with masked secrets."""
    cwd: str = ""
    """Working folder of the script."""
    spent_s: float = 0.0
    """Part of the budget spent by earlier runs of the same study."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeStarted:
    """The script runs once under its own settings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeFinished:
    """The probe is over, and the script is understood."""

    facts: ScriptFacts
    natural: Settings
    refused: tuple[tuple[str, str], ...]
    """(setting, reason) of each setting left out of the space."""
    wall_s: float
    samples_unit: str = "samples"
    """Unit of rates: `samples`, or `steps` when the samples per step are unknown."""
    arguments: tuple[ArgumentFacts, ...] = ()
    """Arguments of the script in use, and arguments that a `--map` would add to this search."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialStarted:
    """A trial runs."""

    number: int
    settings: Settings
    stage: str
    """Reason for these settings: the stage of the plan, or `sampled`."""
    gain_ratio_per_minute: float | None = None
    """Expected gain of the next minute of trials as a share of the best rate; None while unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialProgress:
    """Readings of the latest run: the probe, a trial, a final, or a measurement of a larger batch."""

    gauges: Gauges


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialFinished:
    """A trial ended and is in the database."""

    number: int
    settings: Settings
    stage: str
    result: TrialResult
    is_best: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class FinalsStarted:
    """The best few and the baseline are measured again."""

    numbers: tuple[int, ...]
    num_rounds: int
    is_shared: bool = False
    """True when the rounds run in the process of the trials, because new processes do not fit the time."""
    num_done: int = 0
    """Number of the rounds measured by earlier runs of the same study, beside `num_rounds`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FinalStarted:
    """One run of the finals begins."""

    round: int
    """Number of the round, from 0."""
    number: int
    """Number of the trial whose settings run again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FinalFinished:
    """One run of the finals ended."""

    round: int
    number: int
    result: TrialResult


@dataclass(frozen=True, kw_only=True, slots=True)
class LargerBatchStarted:
    """The compute-only rate is measured on a batch `factor` times as large, 1 for comparison; not a trial."""

    factor: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryShareStarted:
    """The winner's rate is measured under a limit of the device's memory; not a trial."""

    limit_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """A message for the user."""

    message: str
    is_warning: bool = True


Event = (
    SearchStarted
    | ProbeStarted
    | ProbeFinished
    | TrialStarted
    | TrialProgress
    | TrialFinished
    | LargerBatchStarted
    | MemoryShareStarted
    | FinalsStarted
    | FinalStarted
    | FinalFinished
    | Notice
)
OnEvent = Callable[[Event], None]
"""A subscriber: receives every event, and must not raise."""
