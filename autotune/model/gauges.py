"""The state of a running trial at one moment: signs of life for observers, never a measurement."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autotune.model.checks import check_figures


class TrialPhase(StrEnum):
    """Progress of a run of the script."""

    WAITING = "waiting"
    """Not started yet: the tuner waits for a quiet machine."""
    STARTING = "starting"
    """Up to the first optimizer step: interpreter, imports, the script's own preparation."""
    LEARNING = "learning"
    """A probe, which measures nothing, observes the script's first steps."""
    WARM_UP = "warm_up"
    COMPUTE = "compute"
    """The compute-only rate is measured."""
    RAMP = "ramp"
    """The first real batches."""
    WINDOW = "window"
    """The rate is measured."""
    ENDING = "ending"
    """The window is over: an epoch's restart, the report, the end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gauges:
    """Readings at one moment; None when unknown, or when a rate needs two readings and this is the first."""

    phase: TrialPhase
    num_steps: int = 0
    """Optimizer steps completed by the first rank."""
    samples_per_second: float | None = None
    """Rate since the previous reading, on real batches alone; coarse, and never published."""
    data_wait_fraction: float | None = None
    """Share of that time in which the first rank waited for data, 0 to 1."""
    cpu_fraction: float | None = None
    """Share of the usable cores that the trial kept busy, 0 to 1."""
    device_utilization: float | None = None
    """Share of the last moments in which the device ran some kernel, 0 to 1; None on a CPU."""
    memory_bytes: int | None = None
    """Memory compared with the cap. On a CPU, the last reading before the window: a reading inside would disturb it."""

    def __post_init__(self) -> None:
        """Refuses impossible readings."""
        check_figures(self)
        for name in ("data_wait_fraction", "cpu_fraction", "device_utilization"):
            share = getattr(self, name)
            if share is not None and not 0 <= share <= 1:
                raise ValueError(f"{name} must be 0 to 1, not {share!r}")
