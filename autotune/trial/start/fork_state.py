"""State that a fork changes or shares: random numbers, signal handlers, positions in open files."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.protocol.environment import SERVER_ROLLUPS
from autotune.sandbox.redirection import path_calls
from autotune.trial.start.fork_hazards import descriptors

STATELESS = frozenset({"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"})
"""Devices without a state to share."""
STANDARD = (0, 1, 2)
RESET_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGPIPE", "SIGCHLD", "SIGXFSZ")
"""Signals with the default action in a new trial."""
TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A regular file opened by the script; forked processes would share the position and the layer.

    With redirected writes, `path` lies in the layer of the process that opened the file.
    """

    number: int
    path: str
    flags: int
    offset: int
    is_inheritable: bool

    def open_again(self) -> None:
        """Opens the file anew under the same descriptor, at the same position."""
        opened = os.open(path_calls.layers.seen_as(self.path), self.flags & ~(os.O_CREAT | os.O_TRUNC | os.O_EXCL))
        os.lseek(opened, self.offset, os.SEEK_SET)
        os.dup2(opened, self.number, inheritable=self.is_inheritable)
        os.close(opened)


def reopened(number: int, target: str) -> OpenFile | None:
    """The open file; None for other kinds of files, and for a removed or replaced file."""
    try:
        held, there = os.fstat(number), Path(target).stat()
    except OSError:
        return None
    if not stat.S_ISREG(held.st_mode) or (held.st_dev, held.st_ino) != (there.st_dev, there.st_ino):
        return None
    flags = fcntl.fcntl(number, fcntl.F_GETFL)
    return OpenFile(number, target, flags, os.lseek(number, 0, os.SEEK_CUR), os.get_inheritable(number))


class Standard:
    """Identities of the standard streams of this process."""

    def __init__(self) -> None:
        self._identities = _identities()

    def is_changed(self) -> bool:
        """Whether the script has replaced a standard stream."""
        return _identities() != self._identities


def _identities() -> list[tuple[int, int, int]]:
    statuses = [os.fstat(number) for number in STANDARD]
    return [(status.st_dev, status.st_ino, status.st_rdev) for status in statuses]


class ForkState:
    """State of this process, for restoration in forked processes."""

    def __init__(self) -> None:
        self._folder = str(Path.cwd())
        self._random = random.getstate()
        opened = [(number, target) for number, target in descriptors() if _is_the_scripts(number)]
        self.numbers = tuple(number for number, _ in opened)
        """Descriptors to leave open until `restore`, shared devices included. Descriptors opened later are left out,
        because the numbers have other meanings in other processes."""
        found = [reopened(number, target) for number, target in opened]
        self._files = [file for file in found if file is not None]
        self._handlers: dict[int, Any] = {number: signal.getsignal(number) for number in _signals()}

    def restore(self) -> None:
        """Restores the state in this process.

        Raises:
            OSError: A file cannot be opened anew.
        """
        os.chdir(self._folder)
        for file in self._files:
            file.open_again()
        for number, handler in self._handlers.items():
            if handler is not None:
                signal.signal(number, handler)
        random.setstate(self._random)


def why_not_restorable() -> str:
    """State that no forked process can restore, as the rest of a sentence; empty without such state."""
    if any(signal.getitimer(timer)[0] for timer in TIMERS):
        return "has set a timer"
    if any(signal.getsignal(signal.Signals[name]) is None for name in RESET_SIGNALS):
        return "handles a signal outside of Python"
    wakeup = signal.set_wakeup_fd(-1)
    if wakeup != -1:
        signal.set_wakeup_fd(wakeup)
        return "waits for signals in an event loop"
    if any(line.split()[4:5] == [str(os.getpid())] for line in _locks()):
        return "holds a lock on a file"
    try:
        Path.cwd()
    except OSError:
        return "is in a folder that was removed"
    return ""


def is_known(number: int, target: str) -> bool:
    """Whether `ForkState` can restore an open file, or processes can share the file."""
    return not _is_the_scripts(number) or target in STATELESS or reopened(number, target) is not None


def _is_the_scripts(number: int) -> bool:
    return number not in STANDARD and str(number) not in os.environ.get(SERVER_ROLLUPS, "").split()


def _locks() -> list[str]:
    try:
        return Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []


def _signals() -> Iterable[int]:
    return signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
