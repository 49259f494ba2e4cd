"""What a trial's processes report, and what the tuner makes of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from autotune.measure.block import Block
from autotune.model.checks import MAX_SECONDS, check_figures
from autotune.model.facts import ScriptFacts
from autotune.model.observation import Observation
from autotune.model.outcome import Outcome
from autotune.model.surroundings import Surroundings

PAST_ITS_EPOCH = "past_its_epoch"
"""Note on an error after an epoch had gone on past its end: the script may have counted on its length."""

EMPTY_LOADER = "empty_loader:"
"""Beginning of a note on a loader that was iterated and gave no batch; the place where it was built follows."""


class RankStatus(StrEnum):
    """How far one process of the trial came."""

    PROBED = "probed"
    MEASURED = "measured"
    RACED_OUT = "raced_out"
    ENDED = "ended"
    """The script ended by itself before enough blocks were measured."""
    RAISED = "raised"
    """The script ended with an exception."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RaisedError:
    """The exception that ended the script."""

    kind: str
    message: str
    is_out_of_memory: bool
    is_host_memory: bool = False
    """The memory that was refused is the host's, or its shared memory."""
    requested_bytes: int | None = None
    place: str = ""
    """`file:line` of the innermost frame of the script's or a library's code; empty where there is none."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class RankResult:
    """The report of one process that trained; it is read from the user's process and checked."""

    rank: int
    world_size: int
    status: RankStatus
    blocks: tuple[Block, ...] = ()
    """Raw blocks in order, warm-up included."""
    is_converged: bool = False
    is_primed: bool = False
    """The loader's queue may have been full when the clock started; the rate may be too high."""
    compute_samples_per_second: float | None = None
    """Rate on one cached batch, without the loader; this rank's samples."""
    epoch_micro_batches: int | None = None
    """Micro-batches of one epoch on this rank; None where the loader has no length."""
    num_epoch_ends: int = 0
    """Epochs that ended since the ramp; from the second one on they are a part of the window."""
    epoch_end_s: float | None = None
    """What the end of the epoch took that was ended after the window, with the blocks of phase `restart` after it; None
    where none was."""
    first_batch_s: float | None = None
    """From asking for the loader's first iteration to its first batch."""
    is_loader_rebuilt: bool = False
    """Every epoch has a new loader, so that its start costs what the first one did."""
    observed: Mapping[str, str] = field(default_factory=dict)
    """Settings in force at the end, by field, as text (`str(value)`); a field that could not be seen is missing."""
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    held_host_bytes: int | None = None
    """Anonymous and shared host memory of the process and its workers when the window ended, between two steps."""
    passing_host_bytes: int | None = None
    """How much more the process alone held at its most since its training began, in the middle of a step for instance;
    None where the kernel does not say, and before."""
    reserved_bytes: int | None = None
    """Held by the caching allocator when the report was written."""
    device_free_bytes: int | None = None
    """Free on the device at that moment, whoever holds the rest."""
    num_alloc_retries: int = 0
    is_near_cap: bool = False
    """The allocator gave back all that it cached, and tried again, in two blocks of the window in a row."""
    durations_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds by part, in order: start, imports (up to torch), preparation, warm_up, compute, ramp, window, restart,
    observed; and device, which lies within one of them and is taken out of it."""
    first_losses: tuple[float, ...] = ()
    """Of the first backward passes, up to one that is not finite."""
    start_digest: str | None = None
    """What the first losses follow from, the initial weights and the first batch; None where they follow from more."""
    is_loss_finite: bool = True
    """Whether the last loss and all of the window were."""
    has_changed_parameters: bool = True
    num_steps: int = 0
    num_skipped_steps: int = 0
    error: RaisedError | None = None
    facts: ScriptFacts | None = None
    observation: Observation | None = None
    """Of a diagnosis alone."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuses impossible ranks."""
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank {self.rank} is not in a world of {self.world_size}")
        check_figures(self)
        rate = self.compute_samples_per_second
        if rate is not None and rate <= 0:
            raise ValueError(f"compute_samples_per_second must be positive, not {rate!r}")
        for part, duration_s in self.durations_s.items():
            if not 0 <= duration_s <= MAX_SECONDS:
                raise ValueError(f"the duration of {part!r:.40} cannot be {duration_s!r}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """Throughput of one trial over all its ranks."""

    samples_per_second: float
    """Over whole epochs: the steady rate, with the cost of an epoch's start spread over its samples. What is maximised,
    compared and published."""
    low: float
    high: float
    """Interval of the rate at 95 %: repeatability within the trial, not certainty of a ranking."""
    is_converged: bool
    is_nonstationary: bool
    is_primed: bool
    num_blocks: int
    window_s: float
    data_wait_fraction: float
    compute_samples_per_second: float | None
    restart_s: float | None = None
    """What the end of an epoch and the start of the next cost; None where it is not known, or too little to matter."""
    epoch_s: float | None = None
    """Time of an epoch's batches at the steady rate; None where the loader has no length."""

    @property
    def steady_samples_per_second(self) -> float:
        """Within an epoch."""
        if self.restart_s is None or self.epoch_s is None:
            return self.samples_per_second
        return self.samples_per_second * (self.epoch_s + self.restart_s) / self.epoch_s

    def __post_init__(self) -> None:
        """Refuses rates that no training has."""
        if not 0 < self.samples_per_second < float("inf") or not 0 <= self.low <= self.high:
            raise ValueError(f"impossible rate {self.samples_per_second} [{self.low}, {self.high}]")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialResult:
    """How one trial ended, as the runner judged it."""

    outcome: Outcome
    reason: str = ""
    """One sentence; empty for a plain success."""
    place: str = ""
    """`file:line` in the script's or a library's code where it failed; empty where that is not known."""
    missed: tuple[str, ...] = ()
    """Names of settings that were asked for and were not in force."""
    is_inconclusive: bool = False
    """It failed, and that says nothing of its settings: it ended before enough was measured."""
    measurement: Measurement | None = None
    peak_memory_bytes: int | None = None
    """What is compared with the cap: device memory of the trial, or its anonymous memory on a CPU. With what the
    script's validation needs, where the probe saw one, though a trial ends before it comes to that."""
    peak_host_bytes: int | None = None
    """Host memory of the whole tree, validation included; on a CPU the same as the peak."""
    outside_allocator_bytes: int | None = None
    """Device memory of a process that its caching allocator knows nothing of: context, kernels, library handles."""
    is_near_cap: bool = False
    """The allocator thrashed at the cap: feasible, but it loses against settings that do not."""
    lacks_host_memory: bool = False
    """It was the host's memory, or its shared memory, that did not suffice, and not the device's."""
    ranks: tuple[RankResult, ...] = ()
    wall_s: float = 0.0
    durations_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds by part: those of its first rank, and ending, from that report until nothing of the trial is left; or
    unreported alone. Together they are `wall_s`; server, what the process took that this trial was the first to be
    forked from, comes on top."""
    exit_code: int | None = None
    signal: int | None = None
    log_tail: str = ""
    """The last lines that the script printed."""
    start: str = "cold"
    """How the trial was started: cold; forked, from a process that has imported what the script imports; prepared, from
    one that has run the script's own beginning as well; replayed or function."""
    start_reason: str = ""
    """Why it was not faster: for a cold start why it was not forked, for a forked one why not prepared, for a prepared
    one where the settings begin to matter. Empty where nothing faster was tried."""
    saved_s: float = 0.0
    """Seconds that the process it was forked from took for the imports, and for the script's beginning where it was
    prepared, and this trial did not."""
    surroundings: Surroundings | None = None
    """What went on around it while its window was open; None where nobody looked, or it was too short."""
    protection: str = ""
    """What kept it from the user's files, a value of Protection; empty where nothing had to."""
    escaped: tuple[str, ...] = ()
    """User's files that were changed or removed while it ran, in spite of the protection."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """A complete trial has a rate, no other has."""
        if self.outcome.is_complete and self.measurement is None:
            raise ValueError(f"a trial that ended {self.outcome} needs a measurement")

    @property
    def why(self) -> str:
        """The reason, with the place in the code where it failed."""
        return f"{self.reason.rstrip('.')} at {self.place}" if self.place else self.reason

    @property
    def rate_or_bound(self) -> float | None:
        """Samples per second; of a trial that was stopped early the most that it could have reached."""
        if self.measurement is None or self.outcome is not Outcome.RACED_OUT:
            return self.measurement.samples_per_second if self.measurement is not None else None
        bounds = (self.measurement.high, self.measurement.compute_samples_per_second)
        finite = (bound for bound in bounds if bound is not None and 0 < bound < math.inf)
        return next(finite, self.measurement.samples_per_second)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeResult:
    """What a run of the script under its own settings taught."""

    facts: ScriptFacts | None
    """None when it taught nothing."""
    reason: str = ""
    """Why it taught nothing."""
    first_losses: tuple[float, ...] = ()
    is_out_of_memory: bool = False
    is_interrupted: bool = False
    is_time_spent: bool = False
    """All the time of the search was spent before it was through."""
    peak_memory_bytes: int | None = None
    outside_allocator_bytes: int | None = None
    """Device memory of the process outside its caching allocator; None on a CPU, or where nobody says."""
    wall_s: float = 0.0
    log_tail: str = ""
    escaped: tuple[str, ...] = ()
    """User's files that were written in spite of the layer."""
