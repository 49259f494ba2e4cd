"""What the tuner tells its subscribers while it works: the terminal, a log, later a service."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.model.facts import ArgumentFacts, ScriptFacts
from autotune.model.gauges import Gauges
from autotune.model.result import TrialResult
from autotune.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchStarted:
    """A search begins, or goes on."""

    study: str
    script: str
    machine: str
    memory_cap_bytes: int
    max_trials: int | None
    budget_s: float
    num_finished: int
    """Trials that an earlier run of the same study finished."""
    storage: str
    """Database URL with its secrets masked."""
    cwd: str = ""
    """Where the script runs."""
    spent_s: float = 0.0
    """Of the budget, by earlier runs of the same study."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeStarted:
    """The script runs once under its own settings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeFinished:
    """The script is understood."""

    facts: ScriptFacts
    natural: Settings
    refused: tuple[tuple[str, str], ...]
    """(setting, reason) of what is left out of the space."""
    wall_s: float
    samples_unit: str = "samples"
    """What rates are of: `samples`, or `steps` where nobody can say how many samples a step has."""
    arguments: tuple[ArgumentFacts, ...] = ()
    """Arguments of the script in use, and arguments that a `--map` would bring into this search."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialStarted:
    """A trial runs."""

    number: int
    settings: Settings
    stage: str
    """Why these settings: the stage of the plan, or `sampled`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialProgress:
    """How that looks which was started last: the probe, a trial, a final, or a look at a larger batch."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class FinalStarted:
    """One run of the finals begins."""

    round: int
    """From 0."""
    number: int
    """Of the trial that is run again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FinalFinished:
    """One run of the finals ended."""

    round: int
    number: int
    result: TrialResult


@dataclass(frozen=True, kw_only=True, slots=True)
class LargerBatchStarted:
    """The compute-only rate is taken with a batch so many times as large; it is no trial."""

    factor: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """Something that the user should know."""

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
    | FinalsStarted
    | FinalStarted
    | FinalFinished
    | Notice
)
