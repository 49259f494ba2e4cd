"""Memory of one trial on its devices, by NVML: memory in use now, less memory in use before.

NVML names processes by the host's ids, useless inside a container, so a trial's share is the growth since the trial's
start. Growth and shrinkage of earlier processes are left out of the share.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from autotune.host import DeviceInfo
from autotune.runner import devices as devices

PROCESSES_EVERY_S = 1.0
"""Shortest time between two requests for the list of processes, because the driver walks all processes."""


class DeviceMemory:
    """Watches the devices of one trial. The fullest device counts, since all devices have the same cap.

    Args:
        trained_on: The trial's devices; empty on a CPU.
        now: The monotonic clock.
    """

    def __init__(self, trained_on: Sequence[DeviceInfo], now: Callable[[], float] = time.monotonic) -> None:
        self.peak_bytes = 0
        """Highest growth on any of the devices so far."""
        self.last_bytes: int | None = None
        """Growth on the fullest device at the last look; None without figures."""
        self.num_newcomers = 0
        """Most processes outside the trial's tree started after the trial; 0 when ids cannot be compared."""
        self._now = now
        self._devices = tuple(trained_on)
        self._used_before = {device.uuid: devices.used_bytes(device) for device in self._devices}
        self._before = {device.uuid: devices.processes(device) for device in self._devices}
        self._others_growth = dict.fromkeys(self._before, 0)
        self._listed_at = -PROCESSES_EVERY_S

    def begin_anew(self) -> None:
        """Forgets the peak, for another measurement of the same processes; the growth still counts from their start."""
        self.peak_bytes, self.last_bytes, self.num_newcomers = 0, None, 0

    def check(self, pids: Sequence[int]) -> int:
        """Reads the devices and returns the highest growth so far.

        Args:
            pids: Processes of the trial's tree, by the ids of this process's namespace.
        """
        if self._now() - self._listed_at >= PROCESSES_EVERY_S:
            self._listed_at = self._now()
            for device in self._devices:
                self._note_others(device, set(pids))
        growths = [growth for device in self._devices if (growth := self._growth(device)) is not None]
        self.last_bytes = max(0, *growths) if growths else None
        self.peak_bytes = max(self.peak_bytes, self.last_bytes or 0)
        return self.peak_bytes

    def outside_allocator_bytes(self, free_bytes: int | None, reserved_bytes: int | None) -> int | None:
        """Memory of the process on the first device outside the caching allocator.

        Args:
            free_bytes: Free memory of the device, as the process saw it.
            reserved_bytes: Memory of the allocator at that moment.

        Returns:
            The rest of the growth; None without all figures, or when strangers came in between.
        """
        if not self._devices or free_bytes is None or reserved_bytes is None or self.num_newcomers:
            return None
        device = self._devices[0]
        before = self._used_before[device.uuid]
        if before is None:
            return None
        growth = device.total_bytes - free_bytes - before - self._others_growth[device.uuid]
        return max(0, growth - reserved_bytes)

    def _growth(self, device: DeviceInfo) -> int | None:
        used, before = devices.used_bytes(device), self._used_before[device.uuid]
        if used is None or before is None:
            return None
        return used - before - self._others_growth[device.uuid]

    def _note_others(self, device: DeviceInfo, ours: set[int]) -> None:
        running, before = devices.processes(device), self._before[device.uuid]
        growth = sum(running.get(pid, 0) - used for pid, used in before.items())
        newcomers = running.keys() - before.keys() - ours
        if (running.keys() - before.keys()) & ours:
            # The ids are of our namespace, so every other newcomer is a stranger.
            growth += sum(running[pid] for pid in newcomers)
            self.num_newcomers = max(self.num_newcomers, len(newcomers))
        self._others_growth[device.uuid] = growth
