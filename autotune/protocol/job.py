"""One run of the user's script: what is started, under which settings, and where its files are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autotune.measure.loss_parity import LossReference
from autotune.measure.window_stopping import WindowRule
from autotune.model.facts import ScriptFacts
from autotune.settings import Settings


class Mode(StrEnum):
    """Why the script runs."""

    PROBE = "probe"
    """Learn what it is; under its own settings, nothing is measured."""
    SPLIT_PROBE = "split_probe"
    """Learn how its loss is reduced: the first step with the batch in two halves."""
    TRIAL = "trial"
    """Measure it under settings, then end it."""
    RUN = "run"
    """Real training under tuned settings; it is never ended by us."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialJob:
    """Everything that the trial's process must know."""

    mode: Mode
    command: tuple[str, ...]
    """The program and its arguments; mapped settings are in it already."""
    cwd: str
    settings: Settings | None
    """What to apply; None applies nothing."""
    script_settings: Settings | None
    """What the script does by itself; a field that equals it is left alone."""
    facts: ScriptFacts | None
    """What the probe learned; None in the probe."""
    mapped: tuple[str, ...] = ()
    """Fields given to the script through its own arguments: observed, not overridden."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables that the settings need before the interpreter starts."""
    device: str = "cpu"
    devices: tuple[str, ...] = ()
    """Visible devices by UUID or index; empty = as inherited."""
    world_size: int = 1
    seed: int = 0
    cap_bytes: int
    cap_fraction: float = 1.0
    """The cap as a share of the device's memory, less what lies outside the allocator; 1 on a CPU."""
    host_cap_bytes: int | None = None
    """Most host memory of a trial that trains on a device of its own; None on a CPU, where the cap itself is that."""
    outside_allocator_bytes: int | None = None
    """What the probe held outside the allocator; None where it could not be seen."""
    window: WindowRule
    incumbent_samples_per_second: float | None = None
    """Best rate so far: a trial that cannot reach it may stop early."""
    references: tuple[LossReference, ...] = ()
    """First losses of trials in fp32, with which those in another number format are compared."""
    keeps_epochs: bool = False
    """Epochs end where the script's own do: it failed when one went on for the length of the trial."""
    script_steps: int | None = None
    """Optimizer steps after which the script ends by itself, where that was too early: the warm-up must leave most of
    them. None where it does not end, or nobody knows."""
    samples_per_step: float | None = None
    """Samples of one optimizer step under the script's own settings, where the user declared them."""
    batch_probe_factor: int = 1
    """Above 1 this is no trial: the compute-only rate alone is taken, with the cached batch so many times over, to tell
    what a larger effective batch would bring."""
    config: str = ""
    """File of the tuned config, in real training."""
    diagnoses: bool = False
    """After the window the script goes on for some seconds, to be looked at."""
    profiles: bool = False
    """With that, profiles are written for a person to look at."""
    start_limit_s: float
    """Longest time from the start to the first optimizer step."""
    total_limit_s: float
    """Longest time of the whole trial."""
    ends_by: float | None = None
    """When the time of the whole search is spent, on the tuner's clock of `time.monotonic`; None = never."""

    def __post_init__(self) -> None:
        """Refuses jobs that cannot be run."""
        if not self.command:
            raise ValueError("a job needs a command")
        if self.cap_bytes < 1 or self.start_limit_s <= 0 or self.total_limit_s < self.start_limit_s:
            raise ValueError("a job's cap and limits must be positive, and its total at least its start")
        if self.batch_probe_factor < 1:
            raise ValueError(f"a batch cannot be repeated {self.batch_probe_factor} times")
        if self.host_cap_bytes is not None and self.host_cap_bytes < 1:
            raise ValueError("a cap on the host's memory must be positive")
        if self.mode in (Mode.TRIAL, Mode.RUN) and (self.settings is None or self.facts is None):
            raise ValueError(f"a {self.mode} needs settings and facts")
