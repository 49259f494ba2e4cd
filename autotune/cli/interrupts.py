"""SIGINT, SIGTERM and SIGHUP while a search runs: first end after the running trial, then end it, then leave.

SIGUSR1 and SIGUSR2, by which job schedulers warn that the time is nearly up, ask for the first of these and no more.

Where nothing would be saved, as in a diagnosis, the first ends what is running.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Protocol

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""By hand; from a cluster whose time is up; and the terminal is gone."""
WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)
"""From a job scheduler some time before the end, as often as it likes."""
_WORDS = (
    b"\nEnding after the running trial; what is finished is saved. Once more ends the running trial too.\n",
    b"\nEnding what is running.\n",
)


class Stoppable(Protocol):
    """What is asked to stop."""

    level: int

    def request(self) -> None:
        """Asks once more."""


@contextlib.contextmanager
def stops_on_signal(stop: Stoppable, *, is_shown: bool = False) -> Iterator[None]:
    """Inside the block the signals ask for a stop; after it they do what they did before.

    One that is ignored stays ignored, as after `nohup`. In another thread than the main one, which gets no signals,
    nothing is changed.

    Args:
        stop: What is asked.
        is_shown: Somebody else shows that it was; otherwise a line says so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if number in WARNINGS and stop.level:
            return
        if stop.level >= len(_WORDS):
            raise KeyboardInterrupt
        stop.request()
        words = _WORDS[stop.level - 1]
        if is_shown:
            return
        # Not through sys.stderr: the signal may have come in the middle of a write to it.
        with contextlib.suppress(OSError):
            os.write(2, words)

    heard = [number for number in (*SIGNALS, *WARNINGS) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, on_signal) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
