"""The meter's view of a clock, and the clock of the host."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol


class Clock(Protocol):
    """The interface between the meter and a device's clock."""

    def mark(self) -> Any:
        """A mark behind all work queued on the device so far."""

    def release(self, mark: Any) -> None:
        """Frees a reached mark for another use; the caller reads the mark no more."""

    def is_reached(self, mark: Any) -> bool:
        """Whether the device has reached the mark."""

    def wait(self, mark: Any) -> None:
        """Waits until the device has reached the mark."""

    def seconds(self, start: Any, end: Any) -> float:
        """Seconds between two reached marks."""

    def finish(self) -> None:
        """Waits until all marks are reached."""


class HostClock:
    """The monotonic clock: the CPU has done its work when the call returns."""

    mark: Callable[[], float] = staticmethod(time.perf_counter)

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
        """Returns at once."""
