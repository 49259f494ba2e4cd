"""How many failed tokens an address may present."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

BURST = 10
"""Failures in a row without a wait."""
PER_SECOND = 1 / 6
"""Failures forgiven each second: ten a minute."""
MAX_ADDRESSES = 4096


class FailedTokens:
    """Counts failures by address, as a bucket that drains with time.

    A valid token always passes: the limit saves work and lines of the log, while the tokens' length defeats guesses.
    A worker with an old token cannot lock out a team behind the same proxy.

    Args:
        clock: Seconds on a clock that never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._levels: dict[str, tuple[float, float]] = {}

    def count(self, address: str) -> int:
        """Counts a failure; gives the seconds to wait, or 0 below the limit."""
        now = self._clock()
        level, since = self._levels.pop(address, (0.0, now))
        level = max(level - (now - since) * PER_SECOND, 0.0) + 1
        while len(self._levels) >= MAX_ADDRESSES:  # the address that failed longest ago
            del self._levels[next(iter(self._levels))]
        self._levels[address] = (min(level, BURST + 10.0), now)
        return math.ceil((level - BURST) / PER_SECOND) if level > BURST else 0
