"""Measures wall time by part; of nested parts each second counts for the innermost part alone."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Hashable


class Stopwatch:
    """Seconds by part, of one thread.

    Args:
        now: A clock in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[Hashable, float] = defaultdict(float)
        self._now = now
        self._parts: list[Hashable] = []
        self._since = 0.0

    @property
    def is_running(self) -> bool:
        """Whether a part is running."""
        return bool(self._parts)

    @property
    def part(self) -> Hashable | None:
        """The innermost running part; None when no part is running."""
        return self._parts[-1] if self._parts else None

    def enter(self, part: Hashable) -> None:
        """Begins a part within the running part."""
        self._count()
        self._parts.append(part)

    def leave(self) -> None:
        """Ends the innermost part, if any; a call that began before the stopwatch has no part to end."""
        if self._parts:
            self._count()
            self._parts.pop()

    def _count(self) -> None:
        now = self._now()
        if self._parts:
            self.seconds[self._parts[-1]] += now - self._since
        self._since = now
