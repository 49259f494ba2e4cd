"""Jobs: requests for measurements, and the surroundings of the processes that answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autotune.measure.loss_parity import LossReference
from autotune.measure.window_stopping import WindowRule
from autotune.model.facts import ScriptFacts
from autotune.settings import Settings


class Mode(StrEnum):
    """Purpose of a run of the script."""

    PROBE = "probe"
    """Learn about the script, under the script's own settings and without a measurement."""
    SPLIT_PROBE = "split_probe"
    """Learn how the script reduces its loss: the first step with the batch in two halves."""
    TRIAL = "trial"
    """Measure the script under settings, then end the script."""
    RUN = "run"
    """Real training under settings. The script ends by itself; in a trial's folder, the run is counted and ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasurementRequest:
    """Settings to measure, and the measurement's rules; may change between two measurements of one process."""

    settings: Settings | None
    """Settings to apply; None applies nothing."""
    window: WindowRule
    """Length of the measurement."""
    seed: int = 0
    """Seed of the generators of random, numpy and torch."""
    incumbent_samples_per_second: float | None = None
    """Best rate so far: the measurement may end early when the settings cannot reach this rate."""
    references: tuple[LossReference, ...] = ()
    """First losses of trials in fp32, for the comparison with losses in other number formats."""
    looks_at_growth: bool = False
    """Whether to look for memory that grows after the window: on the longest batch, and on the host over an epoch."""
    batch_probe_factor: int | None = None
    """With a number of 1 or more, only the compute-only rate is measured, with so many copies of the cached batch: the
    rate shows what a larger effective batch would bring. None measures the settings as they are."""

    def __post_init__(self) -> None:
        """Refuses requests that cannot be answered."""
        if self.batch_probe_factor is not None and self.batch_probe_factor < 1:
            raise ValueError(f"a batch cannot be repeated {self.batch_probe_factor} times")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunWatch:
    """The figures that a watched training is held against."""

    log: str
    """File for a line of JSON a minute."""
    config: str
    """Absolute path of the tuned config."""
    samples_per_step: float
    """Samples of one optimizer step on all ranks; 1 where steps are counted."""
    samples_per_second: float | None = None
    """Rate of the tuned settings in the finals."""
    samples_unit: str = "samples"


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialJob:
    """A request, and everything that stays the same for the processes of a trial."""

    request: MeasurementRequest
    """Settings to measure, or to apply in real training."""
    mode: Mode
    command: tuple[str, ...]
    """The program and the arguments, mapped settings included."""
    cwd: str
    script_settings: Settings | None
    """The script's own settings; fields with these values are left alone."""
    facts: ScriptFacts | None
    """Findings of the probe; None in the probe."""
    mapped: tuple[str, ...] = ()
    """Fields that reach the script as arguments: observed, not overridden."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables that the settings need before the interpreter starts."""
    device: str = "cpu"
    devices: tuple[str, ...] = ()
    """Visible devices by UUID or index; empty = as inherited."""
    world_size: int = 1
    cap_bytes: int
    cap_fraction: float = 1.0
    """Cap as a share of the device's memory, without memory outside the allocator; 1 on a CPU."""
    host_cap_bytes: int | None = None
    """Most host memory of a trial on a separate device; None on a CPU, where `cap_bytes` is the host's."""
    outside_allocator_bytes: int | None = None
    """Device memory of the probe outside the allocator; None if unknown."""
    keeps_epochs: bool = False
    """Whether epochs end where the script's epochs end: the script failed in an epoch as long as the trial."""
    script_steps: int | None = None
    """Optimizer steps of a script that ended too early; most of the steps must come after the warm-up. None for other
    scripts."""
    own_skipped_share: float | None = None
    """Share of optimizer steps skipped by a gradient scaler under the script's own settings; None before the first
    trial."""
    samples_per_step: float | None = None
    """Samples of one optimizer step of all ranks under the script's own settings, as declared by the user."""
    config: str = ""
    """File of the tuned config, in real training."""
    watch: RunWatch | None = None
    """Figures for a watch over real training; None without a watch."""
    diagnoses: bool = False
    """Whether the script goes on after the window for some seconds of observation."""
    serves: bool = False
    """Whether the process waits for another request after the measurement."""
    profiles: bool = False
    """Whether the observation writes profiles for people."""
    start_limit_s: float
    """Longest time from the start to the first optimizer step, in seconds."""
    total_limit_s: float
    """Longest time of the whole trial, in seconds."""
    ends_by: float | None = None
    """End of the search's time, in seconds of the tuner's `time.monotonic`; None = never."""

    def __post_init__(self) -> None:
        """Refuses jobs that cannot be run."""
        if not self.command:
            raise ValueError("a job needs a command")
        if self.cap_bytes < 1 or self.start_limit_s <= 0 or self.total_limit_s < self.start_limit_s:
            raise ValueError("a job's cap and limits must be positive, and its total at least its start")
        if self.host_cap_bytes is not None and self.host_cap_bytes < 1:
            raise ValueError("a cap on the host's memory must be positive")
        if self.mode in (Mode.TRIAL, Mode.RUN) and (self.request.settings is None or self.facts is None):
            raise ValueError(f"a {self.mode} needs settings and facts")
