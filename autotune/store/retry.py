"""Waits for a database locked or lost for a while."""

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
"""Wait from which the user is told the reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """Limits on trying an operation again; pauses double up to two seconds."""

    retry_for_s: float = 90.0
    """Time after the first attempt in which a new attempt may begin; 0 = one attempt."""
    busy_s: float = math.inf
    """Longest wait of one attempt for another writer on SQLite; `engine.BUSY_TIMEOUT_S` bounds the wait too."""
    on_wait: Callable[[], None] = lambda: None
    """Called once per operation, before a new attempt after some seconds of failure."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def attempt(self, operation: Callable[[], T], is_transient: Callable[[Exception], bool]) -> T:
        """The operation's result, after new attempts for as long as errors are transient and time is left.

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
