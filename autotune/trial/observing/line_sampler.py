"""Samples the current line of the user's code in the training thread, a thousand times a second.

Python handles a timer's signal between two byte codes, so a call into C delays the signal. Each sample therefore counts
for the whole time since the last sample: a delayed sample still finds the line of the long call.
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
"""Seconds between samples; a sample takes about 10 us, 1 % of the time."""


class LineSampler:
    """Seconds by stack of the user's lines; works in the main thread alone, and needs the process's timer."""

    def __init__(self) -> None:
        self.seconds: dict[Stack, float] = defaultdict(float)
        self.torch_seconds: dict[Stack, float] = defaultdict(float)
        """The part of `seconds` with torch's own Python code innermost."""
        self.is_on = False
        self._before: Any = None
        self._since = 0.0

    def begin(self) -> bool:
        """Begins to sample; False when sampling is impossible here."""
        is_taken = signal.getsignal(signal.SIGALRM) not in (signal.SIG_DFL, signal.SIG_IGN, None)
        if (
            threading.current_thread() is not threading.main_thread()
            or is_taken
            or any(signal.getitimer(signal.ITIMER_REAL))
        ):
            return False
        self._before = signal.signal(signal.SIGALRM, self._sample)
        self._since = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, INTERVAL_S, INTERVAL_S)
        self.is_on = True
        return True

    def end(self) -> None:
        """Stops the samples."""
        if self.is_on:
            self.is_on = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            # A last signal may be on its way; the default action would end the process.
            signal.signal(signal.SIGALRM, signal.SIG_IGN)

    def _sample(self, _: int, frame: FrameType | None) -> None:
        now = time.perf_counter()
        elapsed_s, self._since = now - self._since, now
        is_in_torch = frame is not None and is_torchs(frame.f_code)
        stack = users_stack(frame)
        self.seconds[stack] += elapsed_s
        if is_in_torch:
            self.torch_seconds[stack] += elapsed_s
