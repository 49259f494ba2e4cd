"""Host time at which a call's work is done, without the pauses between epochs."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any


class FencedClock:
    """The meter's clock for engines that queue their work.

    A mark waits for the call before the last. So one call is always queued, and the device never waits for the mark.

    Args:
        wait: Waits for the work of a call, by its logs; None where every call returns with its work done.
    """

    marks_steps = False

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

    def release(self, mark: float) -> None:
        """Does nothing."""

    def is_reached(self, mark: float) -> bool:
        """Always True."""
        return True

    def wait(self, mark: float) -> None:
        """Returns at once."""

    def seconds(self, start: float, end: float) -> float:
        """The difference of two marks."""
        return end - start

    def finish(self) -> None:
        """Waits for the latest call."""
        if self._wait is not None and self._latest is not None:
            self._wait(self._latest)
