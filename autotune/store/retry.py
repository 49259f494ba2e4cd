"""Waiting for a database that is locked or gone for a while."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
TELL_AFTER_S = 5.0
"""Whoever waits longer than this wants to know for what."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long an operation is tried again; the pauses double up to two seconds."""

    retry_for_s: float = 90.0
    """No new attempt begins later than this after the first; 0 = one attempt."""
    busy_s: float = math.inf
    """Longest time for which one attempt waits for another writer, as SQLite does by itself; bounded there anyway."""
    on_wait: Callable[[], None] = lambda: None
    """Called once per operation that has failed for some seconds and is tried again."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def attempt(self, operation: Callable[[], T], is_transient: Callable[[Exception], bool]) -> T:
        """What the operation gives back, tried again while its errors are transient and time is left.

        Raises:
            Exception: The operation's own last error.
        """
        began = self.clock()
        pause_s, is_told = FIRST_PAUSE_S, False
        while True:
            try:
                return operation()
            except Exception as error:
                if not is_transient(error) or self.clock() + pause_s > began + self.retry_for_s:
                    raise
            if not is_told and self.clock() >= began + TELL_AFTER_S:
                is_told = True
                self.on_wait()
            self.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
