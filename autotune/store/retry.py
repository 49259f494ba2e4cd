"""Waiting for a database that is locked or gone for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long an operation is tried again; the pauses double up to two seconds."""

    retry_for_s: float = 90.0
    """No new attempt begins later than this after the first; 0 = one attempt."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def attempt(self, operation: Callable[[], T], is_transient: Callable[[Exception], bool]) -> T:
        """What the operation gives back, tried again while its errors are transient and time is left.

        Raises:
            Exception: The operation's own last error.
        """
        deadline = self.clock() + self.retry_for_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return operation()
            except Exception as error:
                if not is_transient(error) or self.clock() + pause_s > deadline:
                    raise
            self.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
