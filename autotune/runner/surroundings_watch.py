"""Watches the load around a trial from the tuner, at most five times a second; the open window counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from autotune.host import DeviceInfo, usable_cpus
from autotune.model.surroundings import Surroundings
from autotune.runner import devices as devices
from autotune.runner.devices import DeviceState
from autotune.runner.pressure import Counters, page_cache_bytes, read_counters
from autotune.runner.sm_activity import SmActivity

DEVICE_EVERY_S = 0.2
"""Time between two looks at the device; the driver averages over a sixth of a second or more."""
COUNTERS_EVERY_S = 0.5
"""Time between two readings of the counters, which take files of every process."""


class SurroundingsWatch:
    """Readings of one trial, from the first look at its open window to the last.

    Args:
        device: The device that trains.
        now: The monotonic clock.
        read: Reads the counters of processes, given the time.
        usable: Cores for the trial; None = the cores of this process.
    """

    def __init__(
        self,
        device: DeviceInfo,
        now: Callable[[], float] = time.monotonic,
        read: Callable[[Sequence[int], float], Counters] = read_counters,
        usable: float | None = None,
    ) -> None:
        self._device, self._now, self._read = device, now, read
        self._usable_cpus = usable_cpus() if usable is None else usable
        self._before: Counters | None = None
        self._latest: Counters | None = None
        """The last two readings, with the window open or closed."""
        self._first: Counters | None = None
        self._last: Counters | None = None
        """The first and the last reading of the open window."""
        self._states: list[DeviceState] = []
        self._sm_activity = SmActivity(device)
        self._state: DeviceState | None = None
        self._state_at = -DEVICE_EVERY_S

    def look(self, pids: Sequence[int], *, in_window: bool) -> None:
        """Takes the readings that are due.

        Args:
            pids: The processes of the trial, and the supervisor.
            in_window: Whether the trial's window is open.
        """
        now = self._now()
        opens = in_window and self._first is None
        if not self._device.is_cpu and (opens or now - self._state_at >= DEVICE_EVERY_S):
            self._state_at, self._state = now, devices.state(self._device)
            if in_window and self._state is not None:
                self._states.append(self._state)
                self._sm_activity.look()
        if opens or self._latest is None or now - self._latest.at_s >= COUNTERS_EVERY_S:
            self._before, self._latest = self._latest, self._read(pids, now)
            if in_window:
                self._last = self._latest
                self._first = self._first or self._last

    @property
    def cpu_fraction(self) -> float | None:
        """Share of the usable cores that the trial kept busy between the last two readings; None before the second."""
        before, latest = self._before, self._latest
        if before is None or latest is None or latest.at_s <= before.at_s:
            return None
        busy_s = latest.ours_s - before.ours_s  # Below 0 after the end of a process.
        return min(1.0, max(0.0, busy_s / (latest.at_s - before.at_s) / self._usable_cpus))

    @property
    def device_utilization(self) -> float | None:
        """Utilization of the device at the last look, 0 to 1; None on a CPU or without a figure."""
        return self._state.utilization if self._state is not None else None

    def found(self, *, num_strangers: int = 0) -> Surroundings | None:
        """The surroundings in the window; None after fewer than two readings.

        Args:
            num_strangers: Other processes that came to the device during the trial.
        """
        first, last = self._first, self._last
        if first is None or last is None or last.at_s <= first.at_s:
            return None
        window_s = last.at_s - first.at_s
        sm_activity = self._sm_activity.share()
        self._sm_activity.close()
        return Surroundings(
            window_s=window_s,
            usable_cpus=self._usable_cpus,
            cpu_pressure=_share(first.cpu_pressure_s, last.cpu_pressure_s, window_s),
            io_pressure=_share(first.io_pressure_s, last.io_pressure_s, window_s),
            memory_pressure=_share(first.memory_pressure_s, last.memory_pressure_s, window_s),
            quota_throttled=_share(first.throttled_s, last.throttled_s, window_s),
            foreign_cpus=_foreign_cpus(first, last, window_s),
            own_cpus=max(0.0, last.ours_s - first.ours_s) / window_s,
            storage_read_bytes=max(0, last.storage_read_bytes - first.storage_read_bytes),
            page_cache_bytes=page_cache_bytes(),
            device_utilization=_mean([state.utilization for state in self._states]),
            sm_activity=sm_activity,
            power_w=_mean([state.power_w for state in self._states]),
            sm_clock_mhz=_mean([state.sm_clock_mhz for state in self._states]),
            temperature_c=max((s.temperature_c for s in self._states if s.temperature_c is not None), default=None),
            throttle_reasons=tuple(dict.fromkeys(reason for state in self._states for reason in state.reasons)),
            num_strangers=num_strangers,
        )


def _share(first_s: float | None, last_s: float | None, window_s: float) -> float | None:
    """Share of the window, at most 1: version 2 of cgroups counts stops on several cores several times."""
    return None if first_s is None or last_s is None else min(1.0, max(0.0, last_s - first_s) / window_s)


def _foreign_cpus(first: Counters, last: Counters, window_s: float) -> float | None:
    if first.busy_s is None or last.busy_s is None:
        return None
    # The time of an ended process that no parent waited for is lost, and counts as foreign.
    return max(0.0, last.busy_s - first.busy_s - (last.ours_s - first.ours_s)) / window_s


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
