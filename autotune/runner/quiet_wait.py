"""Waits for a quiet machine before a trial, within bounds; the record tells of a machine that stayed busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from autotune.host import DeviceInfo, usable_cpus
from autotune.model.result import TrialResult
from autotune.model.surroundings import FOREIGN_SHARE, HARDWARE_REASONS
from autotune.runner import devices as devices
from autotune.runner.pressure import num_running

WAIT_LIMIT_S = 3.0
"""Longest wait before one trial."""
NUM_VAIN_WAITS = 2
"""Waits in vain, in a row, after which the search stops to wait, until the machine was found quiet once."""
LOOK_EVERY_S = 0.1
NUM_LOOKS = 3
"""Looks at the running tasks; the quietest look counts, since every machine has tasks that run for a moment."""
BETWEEN_LOOKS_S = 0.01
LEFTOVER_BYTES = 256 << 20
"""Growth of the device memory in use since the start of the search that is no sign of another user."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """State of the machine before a trial."""

    waited_s: float
    is_quiet: bool

    def written_with(self, result: TrialResult) -> TrialResult:
        """The result of the trial that followed, with this state in the surroundings, if watched."""
        if result.surroundings is None:
            return result
        surroundings = replace(result.surroundings, waited_s=self.waited_s, was_quiet=self.is_quiet)
        return replace(result, surroundings=surroundings)


class QuietWait:
    """Waits before every trial of a search until no other process is at work.

    Args:
        device: The device that trains, as at the start of the search.
        is_shared: Whether others may use the device; then the device's memory is no sign, unlike the temperature.
        running: (tasks running or waiting for a core, cores of the machine); None without figures.
        now: The monotonic clock.
        sleep: Waits a number of seconds.
    """

    def __init__(
        self,
        device: DeviceInfo,
        *,
        is_shared: bool = False,
        running: Callable[[], tuple[int, int] | None] = num_running,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._device, self._is_shared = device, is_shared
        self._running, self._now, self._sleep = running, now, sleep
        self._num_vain = 0

    def wait(self, is_called_off: Callable[[], bool] = lambda: False, *, holds_memory: bool = False) -> Quiet:
        """Waits for quiet between two trials; the length of the wait, and whether the machine became quiet.

        Args:
            is_called_off: Whether to give up the wait.
            holds_memory: Whether a process of the search holds memory of the device; memory in use is then no sign of
                other users.
        """
        began = self._now()
        limit_s = WAIT_LIMIT_S if self._num_vain < NUM_VAIN_WAITS else 0.0
        while not (is_quiet := self._is_quiet(holds_memory=holds_memory)):
            if self._now() - began >= limit_s or is_called_off():
                break
            self._sleep(LOOK_EVERY_S)
        self._num_vain = 0 if is_quiet else self._num_vain + 1
        return Quiet(waited_s=self._now() - began, is_quiet=is_quiet)

    def _is_quiet(self, *, holds_memory: bool) -> bool:
        return self._is_device_quiet(holds_memory=holds_memory) and self._are_cores_free()

    def _is_device_quiet(self, *, holds_memory: bool) -> bool:
        """Whether the device is cool, and holds no more memory than at the start of the search."""
        if self._device.is_cpu:
            return True
        state = devices.state(self._device)
        if state is not None and any(reason in HARDWARE_REASONS for reason in state.reasons):
            return False
        used = devices.used_bytes(self._device)
        if used is None or self._is_shared or holds_memory:
            return True
        return used <= self._device.total_bytes - self._device.free_bytes + LEFTOVER_BYTES

    def _are_cores_free(self) -> bool:
        """Whether the cores of a trial are free but for a share; a large machine has further cores for other tasks."""
        usable = usable_cpus()
        for look in range(NUM_LOOKS):
            if look:
                self._sleep(BETWEEN_LOOKS_S)
            found = self._running()
            if found is None:
                return True
            num_others, num_cpus = found[0] - 1, found[1]
            if num_others <= max(FOREIGN_SHARE * usable, num_cpus - usable):
                return True
        return False
