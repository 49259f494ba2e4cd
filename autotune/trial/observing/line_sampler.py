"""Which lines of the user's code the training thread spends its time in, looked at a thousand times a second.

A timer's signal is handled between two byte codes, so a call into C delays it: each look counts for the time since the
one before, which by then was spent in that call, at the line that is still the current one.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import defaultdict
from types import FrameType
from typing import Any

from autotune.trial.observing.user_code import Stack, is_torchs, users_stack

INTERVAL_S = 0.001
"""A look takes some 10 us: about 1 % of the time, and hundreds of looks in a second."""


class LineSampler:
    """Seconds by stack of the user's lines. Only in the main thread, and only where nobody else uses the timer."""

    def __init__(self) -> None:
        self.seconds: dict[Stack, float] = defaultdict(float)
        self.torch_seconds: dict[Stack, float] = defaultdict(float)
        """Of these, those in which torch's own Python ran innermost."""
        self.is_on = False
        self._before: Any = None
        self._since = 0.0

    def begin(self) -> bool:
        """Begins to look; False where that cannot be done."""
        is_taken = signal.getsignal(signal.SIGALRM) not in (signal.SIG_DFL, signal.SIG_IGN, None)
        if (
            threading.current_thread() is not threading.main_thread()
            or is_taken
            or any(signal.getitimer(signal.ITIMER_REAL))
        ):
            return False
        self._before = signal.signal(signal.SIGALRM, self._look)
        self._since = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, INTERVAL_S, INTERVAL_S)
        self.is_on = True
        return True

    def end(self) -> None:
        """Looks no more."""
        if self.is_on:
            self.is_on = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            # A last signal may be on its way, whose own action would end the process.
            signal.signal(signal.SIGALRM, signal.SIG_IGN)

    def _look(self, _: int, frame: FrameType | None) -> None:
        now = time.perf_counter()
        elapsed_s, self._since = now - self._since, now
        is_in_torch = frame is not None and is_torchs(frame.f_code)
        stack = users_stack(frame)
        self.seconds[stack] += elapsed_s
        if is_in_torch:
            self.torch_seconds[stack] += elapsed_s
