"""Waits for further requests in a process that has measured, and switches the process to other settings.

All ranks end a measurement before the same step. Every rank then takes back the settings, waits for the file with the
next request, and goes on from this step under the next settings. Nothing passes between the ranks meanwhile.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, NoReturn, Protocol, TypeVar

from autotune.protocol.codec import decode
from autotune.protocol.job import TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.protocol.progress_marks import Mark
from autotune.trial.loader.loaders import SwitchedError
from autotune.trial.meter.durations import PartTimes
from autotune.trial.meter.rank_sync import Progress
from autotune.trial.report import rank_report
from autotune.trial.torch import allocator

STAYS = "settings stay in force, since the script or a library has wrapped {} after autotune"
POLL_S = 0.002
"""Time between two looks for the next request; the process has nothing else to do."""


class Measuring(Protocol):
    """A measurement in this process."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""

    def install(self) -> None:
        """Puts the settings in force and begins the measurement."""

    def remove(self) -> list[str]:
        """Takes the settings back; returns what keeps some of them in force."""


Session = TypeVar("Session", bound=Measuring)


class Windows(Generic[Session]):
    """The measurements of one process.

    Args:
        paths: Files of the process, and of the first measurement.
        begin: Builds the measurement of a later request, given the measurement before, and the request's job, files
            and times.
    """

    def __init__(self, paths: TrialPaths, begin: Callable[[Session, TrialJob, TrialPaths, PartTimes], Session]) -> None:
        self._home = self._paths = paths
        self._begin = begin
        self._number = 0

    def go_on(self, measuring: Session) -> NoReturn:
        """Goes on with the next request after a reported measurement, or ends the process.

        Raises:
            SwitchedError: The next settings are in force.
        """
        left = measuring.remove()
        free_memory()
        rank_report.wait_for_others(self._paths, measuring.world_size)
        if left:
            self.say(STAYS.format(" and ".join(left)))
            rank_report.end_process()
        if rank_report.identity()[0] == 0:
            Progress(self._paths.progress).put(Mark.AWAITS, 1)
        self._number += 1
        self._paths = self._home.window(self._number)
        job = self._next_request()
        asked_at = time.monotonic()
        self._paths.results.mkdir(parents=True, exist_ok=True)
        self._begin(measuring, job, self._paths, PartTimes.after_switch(asked_at)).install()
        raise SwitchedError

    def say(self, reason: str) -> None:
        """Says why this process does not go on; the tuner tells the last line of the output."""
        with suppress(OSError, ValueError, AttributeError):  # a stream that the script has closed or replaced
            sys.stderr.write(f"autotune: {reason}\n")

    def _next_request(self) -> TrialJob:
        """Waits for the next request, without end: the supervisor ends the process."""
        path = self._paths.job
        while path.is_symlink() or not path.exists():  # A link is none of the tuner's.
            time.sleep(POLL_S)
        return decode(TrialJob, path.read_text())


def free_memory() -> None:
    """Returns the memory of the last measurement to device and host; the next measurement has new peaks."""
    gc.collect()
    allocator.forget_peaks()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
