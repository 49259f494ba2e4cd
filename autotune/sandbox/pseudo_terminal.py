"""The terminal that a script prints to, and the log that keeps it. Standard library only: the supervisor loads this."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import termios
import time
from pathlib import Path

HEAD_BYTES = 1 << 20
"""Output kept from the beginning."""
TAIL_BYTES = 1 << 16
"""Output kept from the end, when there is more than the beginning."""
DRAIN_S = 0.5
"""Longest time to read what is left in the terminal."""


class BoundedLog:
    """A log file with the first MiB of the output and the last 64 KiB."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self._num_bytes = 0
        self._tail = b""

    def write(self, data: bytes) -> None:
        """Keeps what fits; a full disk loses output, not the trial."""
        room = max(0, HEAD_BYTES - self._num_bytes)
        self._num_bytes += len(data)
        self._tail = (self._tail + data[room:])[-TAIL_BYTES:]
        if room:
            self._put(data[:room])

    def close(self) -> None:
        """Writes the end of an output that was longer than the head."""
        left_out = self._num_bytes - HEAD_BYTES - len(self._tail)
        if left_out > 0:
            self._put(b"\n... %d bytes left out ...\n" % left_out)
        self._put(self._tail)
        self._file.close()

    def _put(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError:
            return


def open_terminal() -> tuple[int, int]:
    """Both sides of a terminal for the script's output.

    It is the script's input as well, so that a script that asks for the terminal's size there is told; but there is
    nothing to read: a read is at the end of the file at once.
    """
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    attributes = termios.tcgetattr(slave)
    attributes[1] &= ~termios.ONLCR
    attributes[3] &= ~(termios.ICANON | termios.ECHO)
    attributes[6][termios.VMIN] = attributes[6][termios.VTIME] = 0
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    return master, slave


class Terminal:
    """The terminal that the script prints to, with its log.

    Its own side stays open here, so that a script may close it and come back.
    """

    def __init__(self, master: int, log: BoundedLog) -> None:
        self.master = master
        self._log = log

    def copy(self) -> None:
        """Moves what can be read at once to the log."""
        self._log.write(os.read(self.master, 65536))

    def drain(self, limit_s: float = DRAIN_S) -> None:
        """Moves all that is there to the log; bounded, because a stray may print for ever."""
        deadline = time.monotonic() + limit_s
        while select.select([self.master], [], [], 0)[0] and time.monotonic() < deadline:
            self.copy()
