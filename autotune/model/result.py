"""The reports of a trial's processes, and the tuner's result of the trial."""

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
from autotune.settings import BY_NAME

STARTUP = ("start", "imports", "preparation")
"""Parts of the time of a trial with a process of its own until the script trains."""
SWITCH = "switch"
"""Part of a live trial: from the request until the process trains with the settings, loaders and builds included."""


class StartKind(StrEnum):
    """Origin of a trial's result."""

    COLD = "cold"
    """A fresh interpreter."""
    FORKED = "forked"
    """A fork of a process with the script's imports."""
    PREPARED = "prepared"
    """A fork of a process that has run the script's beginning as well."""
    LIVE = "live"
    """A process that had measured other settings before."""
    REPLAYED = "replayed"
    """A recording."""
    FUNCTION = "function"
    """A callable in place of a script."""


class RankStatus(StrEnum):
    """Progress of one process of the trial."""

    PROBED = "probed"
    MEASURED = "measured"
    RACED_OUT = "raced_out"
    ENDED = "ended"
    """The script ended by itself before enough blocks were measured."""
    RAISED = "raised"
    """The script ended with an exception."""


class ParityGap(StrEnum):
    """Reason for not comparing the losses of a reduced number format with the losses in fp32."""

    UNKNOWN_START = "unknown_start"
    """The forward pass draws random numbers, or the trial's start was not observed."""
    NO_REFERENCE = "no_reference"
    """No trial in fp32 began with the same weights and the same batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RaisedError:
    """The exception that ended the script."""

    kind: str
    message: str
    is_out_of_memory: bool
    is_host_memory: bool = False
    """True when the host refused its memory or shared memory."""
    requested_bytes: int | None = None
    place: str = ""
    """`file:line` of the innermost frame in the script's or a library's code; empty when there is none."""

    def __post_init__(self) -> None:
        """Refuses impossible figures."""
        check_figures(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class RankResult:
    """The report of one training process, read from the user's process and checked."""

    rank: int
    world_size: int
    status: RankStatus
    blocks: tuple[Block, ...] = ()
    """Raw blocks in order, including warm-up."""
    is_converged: bool = False
    is_primed: bool = False
    """True when the loader's queue may have been full at the start of the window; the rate may be too high."""
    compute_samples_per_second: float | None = None
    """Rate of this rank on one cached batch, without the loader."""
    epoch_micro_batches: int | None = None
    """Micro-batches of one epoch on this rank; None when the loader has no length."""
    num_epoch_ends: int = 0
    """Epochs that ended since the ramp; from the second on they are part of the window."""
    epoch_end_s: float | None = None
    """Duration of the epoch's end forced after the window; blocks of phase `restart` follow. None without it."""
    left_out_s: float = 0.0
    """Seconds of blocks left out, because cuDNN searched kernels for new sizes of the model's inputs."""
    first_batch_s: float | None = None
    """Time from the request for the loader's first iteration to its first batch."""
    is_loader_rebuilt: bool = False
    """True when every epoch has a new loader, so that an epoch's start costs as much as the first."""
    observed: Mapping[str, bool | int | float | str | None] = field(default_factory=dict)
    """Settings in force at the end, by field. None where a value asked for could not be read back; a field that shows
    nothing is missing. Results of older versions have every value as text."""
    observed_comments: Mapping[str, str] = field(default_factory=dict)
    """Remarks on values in `observed`, by field."""
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    held_host_bytes: int | None = None
    """Anonymous and shared host memory of the process and its workers between two steps, at the end of the window."""
    host_growth_bytes: int | None = None
    """Growth of `held_host_bytes` over the window; None unless asked for, and where workers started anew meanwhile."""
    longest_batch_factor: float | None = None
    """Bytes of the longest further batch, trained on after the window, as a multiple of the mean; None without."""
    num_further_batches: int = 0
    """Batches among which the longest was looked for."""
    passing_host_bytes: int | None = None
    """Additional host memory of the process alone at its peak since training began, for instance in the middle of a
    step. None when the kernel does not tell, or before training."""
    reserved_bytes: int | None = None
    """Memory held by the caching allocator when the report was written."""
    device_free_bytes: int | None = None
    """Free memory of the device at the same moment, whichever processes hold the rest."""
    window_allocated_bytes: int | None = None
    """Peak of allocated memory on real batches, after warm-up; None without CUDA."""
    num_alloc_retries: int = 0
    num_window_retries: int = 0
    """The part of `num_alloc_retries` in the window."""
    is_near_cap: bool = False
    """True when the allocator emptied its cache and retried in two consecutive blocks of the window."""
    durations_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds by part, in order: start, imports (up to torch), preparation, warm_up, compute, ramp, window, restart,
    observed. The part `device` lies within another part and is subtracted from it."""
    first_losses: tuple[float, ...] = ()
    """Losses of the first backward passes, up to the first one that is not finite."""
    first_batches: tuple[int, ...] = ()
    """For each of the first losses a checksum of the batches before it, up to the first loss after an unseen batch."""
    start_digest: str | None = None
    """Digest of the initial weights and the first batch; None if the first losses depend on more."""
    is_loss_finite: bool = True
    """True when the last loss and all losses of the window were finite."""
    has_changed_parameters: bool = True
    num_steps: int = 0
    num_skipped_steps: int = 0
    error: RaisedError | None = None
    facts: ScriptFacts | None = None
    observation: Observation | None = None
    """Present in a diagnosis only."""
    is_past_its_epoch: bool = False
    """True after an error in an epoch extended past its end: the script may depend on the epoch's length."""
    empty_loaders: tuple[str, ...] = ()
    """`file:line` of each iterated loader without a batch."""
    untrained: str = ""
    """What trains in a way that cannot be counted, and the line to add; empty when nothing of the kind was seen."""
    notes: tuple[str, ...] = ()
    """Read from records of earlier versions, which stored the two fields above as codes; always empty now."""

    def __post_init__(self) -> None:
        """Refuses impossible ranks."""
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank {self.rank} is not in a world of {self.world_size}")
        check_figures(self)
        rate = self.compute_samples_per_second
        if rate is not None and rate <= 0:
            raise ValueError(f"compute_samples_per_second must be positive, not {rate!r}")
        self._type_observed()
        for part, duration_s in self.durations_s.items():
            if not 0 <= duration_s <= MAX_SECONDS:
                raise ValueError(f"the duration of {part!r:.40} cannot be {duration_s!r}")

    def _type_observed(self) -> None:
        """Gives observed values their settings' types; text of no value becomes a comment."""
        values, comments = dict(self.observed), dict(self.observed_comments)
        for name, seen in self.observed.items():
            setting = BY_NAME.get(name)
            if setting is None or seen is None:
                continue
            values[name] = setting.reading(seen)
            if values[name] is None:
                comments.setdefault(name, str(seen))
        object.__setattr__(self, "observed", values)
        object.__setattr__(self, "observed_comments", comments)


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """Throughput of one trial over all its ranks."""

    samples_per_second: float
    """Rate over whole epochs: the steady rate, with the cost of an epoch's start spread over its samples. This rate is
    maximised, compared and published."""
    low: float
    high: float
    """95 % interval of the rate: repeatability within the trial, not certainty of a ranking."""
    is_converged: bool
    is_nonstationary: bool
    is_primed: bool
    num_blocks: int
    window_s: float
    data_wait_fraction: float
    compute_samples_per_second: float | None
    restart_s: float | None = None
    """Cost of an epoch's end and the next start; None when unknown or negligible."""
    epoch_s: float | None = None
    """Time of an epoch's batches at the steady rate; None when the loader has no length."""

    @property
    def steady_samples_per_second(self) -> float:
        """The rate within an epoch."""
        if self.restart_s is None or self.epoch_s is None:
            return self.samples_per_second
        return self.samples_per_second * (self.epoch_s + self.restart_s) / self.epoch_s

    def __post_init__(self) -> None:
        """Raises `ValueError` for an impossible rate or interval."""
        if not 0 < self.samples_per_second < float("inf") or not 0 <= self.low <= self.high:
            raise ValueError(f"impossible rate {self.samples_per_second} [{self.low}, {self.high}]")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialResult:
    """The ending of one trial, as judged by the runner."""

    outcome: Outcome
    reason: str = ""
    """One sentence; empty for a plain success."""
    place: str = ""
    """`file:line` of the failure in the script's or a library's code; empty when unknown."""
    missed: tuple[str, ...] = ()
    """Names of requested settings that were not in force."""
    is_inconclusive: bool = False
    """True when the failure says nothing about the settings, because the trial ended before enough was measured."""
    measurement: Measurement | None = None
    peak_memory_bytes: int | None = None
    """Memory compared with the cap: device memory of the trial, or its anonymous memory on a CPU. The peak includes the
    validation seen by the probe, although trials end before they validate."""
    peak_host_bytes: int | None = None
    """Host memory of the whole process tree, including validation; on a CPU the same as `peak_memory_bytes`."""
    outside_allocator_bytes: int | None = None
    """Device memory of a process outside its caching allocator: context, kernels, library handles."""
    is_near_cap: bool = False
    """True when the allocator thrashed at the cap: feasible, but inferior to settings that did not."""
    lacks_host_memory: bool = False
    """True when host memory or shared memory, not device memory, was too small."""
    ranks: tuple[RankResult, ...] = ()
    wall_s: float = 0.0
    durations_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds by part. Usually the parts of the first rank, plus `ending` from its report to the end of the last
    process; without a report only `unreported`. These parts add up to `wall_s`. The part `server` comes on top: the
    start of the fork server, if this trial was its first."""
    exit_code: int | None = None
    signal: int | None = None
    log_tail: str = ""
    """The last lines printed by the script."""
    start: StartKind = StartKind.COLD
    start_reason: str = ""
    """Reason against a faster start: for a cold start, against forking; for a forked start, against a prepared start;
    for a prepared start, the place where settings begin to matter. For a start in place of a live measurement, the
    reason comes first. Empty when nothing faster was tried."""
    saved_s: float = 0.0
    """Seconds of imports, and of a prepared beginning, spent once by the parent process and not by this trial."""
    surroundings: Surroundings | None = None
    """Readings during the window; None without an observer or for too short a window."""
    protection: str = ""
    """Protection of the user's files, a value of Protection; empty when unnecessary."""
    escaped: tuple[str, ...] = ()
    """User files changed or removed during the trial in spite of the protection."""
    parity_gap: ParityGap | None = None
    """Reason for not claiming parity with fp32; None when parity is claimed, or the number format is the script's."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises `ValueError` for a complete trial without a measurement."""
        if self.outcome.is_complete and self.measurement is None:
            raise ValueError(f"a trial that ended {self.outcome} needs a measurement")

    @property
    def is_live(self) -> bool:
        """Whether the process had measured other settings before."""
        return self.start is StartKind.LIVE

    @property
    def left_out_s(self) -> float:
        """Seconds left out of the measurement, because cuDNN searched kernels for new sizes of the model's inputs."""
        return max((rank.left_out_s for rank in self.ranks), default=0.0)

    @property
    def is_doubtful_over_cap(self) -> bool:
        """Whether it was over the cap in a process that may hold memory of earlier measurements."""
        return self.is_live and self.outcome.is_infeasible

    @property
    def why(self) -> str:
        """The reason, with the failing place in the code."""
        return f"{self.reason.rstrip('.')} at {self.place}" if self.place else self.reason

    @property
    def has_ended_early(self) -> bool:
        """Whether the script ended by itself before enough was measured."""
        return self.is_inconclusive and any(rank.status is RankStatus.ENDED for rank in self.ranks)

    @property
    def rate_or_bound(self) -> float | None:
        """Samples per second; for a trial stopped early, an upper bound."""
        if self.measurement is None or self.outcome is not Outcome.RACED_OUT:
            return self.measurement.samples_per_second if self.measurement is not None else None
        bounds = (self.measurement.high, self.measurement.compute_samples_per_second)
        finite = (bound for bound in bounds if bound is not None and 0 < bound < math.inf)
        return next(finite, self.measurement.samples_per_second)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeResult:
    """What a run of the script under its own settings showed."""

    facts: ScriptFacts | None
    """None when the run showed nothing."""
    reason: str = ""
    """Reason why the run showed nothing."""
    first_losses: tuple[float, ...] = ()
    is_out_of_memory: bool = False
    is_interrupted: bool = False
    is_time_spent: bool = False
    """True when the search ran out of time during the probe."""
    peak_memory_bytes: int | None = None
    outside_allocator_bytes: int | None = None
    """Device memory of the process outside its caching allocator; None on a CPU or when unknown."""
    wall_s: float = 0.0
    log_tail: str = ""
    escaped: tuple[str, ...] = ()
    """User files written in spite of the protection."""


def last_lines(printed: str, most_chars: int = 2000) -> str:
    """The last whole lines of a script's output, of at most so many characters; the end of a longer single line."""
    text = printed.strip()
    if len(text) <= most_chars:
        return text
    partial, newline, rest = text[-most_chars:].partition("\n")
    return rest if newline else partial
