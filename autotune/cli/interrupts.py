"""Signals during a search: the first ends after the running trial, the second ends the trial, the third leaves.

SIGINT, SIGTERM and SIGHUP count. SIGUSR1 and SIGUSR2 are warnings of job schedulers before the time is up; a warning
counts as a first signal and never as a second.

A diagnosis saves nothing, so the first signal ends the running script.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Protocol

from autotune.cli import early_warnings
from autotune.cli.early_warnings import WARNINGS

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""From the keyboard, from a cluster at the end of the time, and from a closed terminal."""
_WORDS = (
    b"\nEnding after the running trial; what is finished is saved. Once more ends the running trial too.\n",
    b"\nEnding what is running.\n",
)


class Stoppable(Protocol):
    """A request to stop, in steps."""

    level: int

    def request(self) -> None:
        """Asks once more."""


@contextlib.contextmanager
def stops_on_signal(stop: Stoppable, *, is_shown: bool = False) -> Iterator[None]:
    """Signals inside the block ask for a stop; after the block, the earlier handlers are back.

    A warning before the block counts. An ignored signal stays ignored, as after `nohup`. Only the main thread gets
    signals, so in any other thread nothing is changed.

    Args:
        stop: Counts the requests.
        is_shown: The terminal shows the request already; otherwise a line is printed.
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
        # Not through sys.stderr: the signal may interrupt a write to sys.stderr.
        with contextlib.suppress(OSError):
            os.write(2, words)

    heard = [number for number in (*SIGNALS, *WARNINGS) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, on_signal) for number in heard}
    if early_warnings.take():
        on_signal(WARNINGS[0], None)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
