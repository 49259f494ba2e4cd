"""Host time at the end of a call's work, without the pauses between epochs."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from autotune.trial.meter.host_clock import HostClock


class FencedClock(HostClock):
    """The meter's clock for engines with a queue of work.

    A mark waits for the call before the last. The last call stays queued, and the device never waits for the mark.

    Args:
        wait: Waits for the work behind the logs of a call; None when calls return with all work done.
    """

    def __init__(self, wait: Callable[[Any], None] | None) -> None:
        self._wait = wait
        self._before: Any = None
        self._latest: Any = None
        self._paused_s = 0.0

    def note(self, logs: Any) -> None:
        """Notes the logs of a call."""
        self._before, self._latest = self._latest, logs

    def leave_out(self, seconds: float) -> None:
        """Takes a pause out of the time."""
        self._paused_s += seconds

    def mark(self) -> float:
        """Seconds without pauses."""
        if self._wait is not None and self._before is not None:
            self._wait(self._before)
        return perf_counter() - self._paused_s

    def finish(self) -> None:
        """Waits for the latest call."""
        if self._wait is not None and self._latest is not None:
            self._wait(self._latest)
