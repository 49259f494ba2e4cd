"""Rates between two looks at a running trial, from the process's counts; the counts are not trusted."""

from __future__ import annotations

import time
from collections.abc import Callable

from autotune.model.gauges import Gauges, TrialPhase
from autotune.runner.reports import Progress

MAX_RATE = 1e12
"""Samples per second beyond the reach of any training."""
ON_REAL_BATCHES = (TrialPhase.RAMP, TrialPhase.WINDOW)


class GaugeReader:
    """Turns counts into rates; more frequent looks give coarser rates.

    Args:
        world_size: Ranks that train together; the first rank's counts stand for all ranks.
        is_probe: Whether the run is a probe, which has no phases of a measurement.
        now: The monotonic clock.
    """

    def __init__(self, world_size: int, *, is_probe: bool = False, now: Callable[[], float] = time.monotonic) -> None:
        self._world_size, self._is_probe, self._now = world_size, is_probe, now
        self._before: tuple[float, Progress] | None = None

    def read(
        self,
        progress: Progress,
        *,
        cpu_fraction: float | None = None,
        device_utilization: float | None = None,
        memory_bytes: int | None = None,
    ) -> Gauges:
        """The gauges now.

        Args:
            progress: Counts of the trial's process.
            cpu_fraction: Share of the usable cores kept busy by the trial, 0 to 1.
            device_utilization: Utilization of the device, 0 to 1.
            memory_bytes: Memory under the cap.
        """
        now, before = self._now(), self._before
        self._before = (now, progress)
        rate = wait = None
        is_steady = before is not None and before[1].phase is progress.phase
        if before is not None and is_steady and now > before[0] and progress.phase in ON_REAL_BATCHES:
            elapsed_s = now - before[0]
            rate = self._world_size * (progress.num_samples - before[1].num_samples) / elapsed_s
            wait = min(1.0, max(0.0, (progress.waited_s - before[1].waited_s) / elapsed_s))
        is_learning = self._is_probe and progress.phase is not TrialPhase.STARTING
        return Gauges(
            phase=TrialPhase.LEARNING if is_learning else progress.phase,
            num_steps=max(0, progress.num_steps),
            samples_per_second=rate if rate is not None and 0 < rate < MAX_RATE else None,
            data_wait_fraction=wait,
            cpu_fraction=cpu_fraction,
            device_utilization=device_utilization,
            memory_bytes=memory_bytes,
        )
