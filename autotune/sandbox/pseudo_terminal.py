"""The terminal of a script's output, and the log. Standard library only: the supervisor loads this."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
import time

from autotune.sandbox.descriptors import readable

HEAD_BYTES = 1 << 20
"""Output kept from the beginning."""
TAIL_BYTES = 1 << 16
"""Output kept from the end of a longer output."""
DRAIN_S = 0.5
"""Longest time to read the rest of the output."""


class BoundedLog:
    """A log file with the first MiB of the output and the last 64 KiB.

    Args:
        file: Descriptor of the empty file, to be closed by the log.
    """

    def __init__(self, file: int) -> None:
        self._file = os.fdopen(file, "wb", buffering=0)
        self._num_bytes = 0
        self._tail = b""

    def write(self, data: bytes) -> None:
        """Keeps output within the bounds; a full disk loses output, not the trial."""
        room = max(0, HEAD_BYTES - self._num_bytes)
        self._num_bytes += len(data)
        self._tail = (self._tail + data[room:])[-TAIL_BYTES:]
        if room:
            self._put(data[:room])

    def close(self) -> None:
        """Writes the end of a long output, and closes the file."""
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
    """Both sides of a terminal for the script.

    The terminal is the script's input as well, and answers a question for the terminal's size. A read is at the end of
    the file at once.
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
    """The script's terminal, with a log.

    The script's side stays open here, so a script may close and reopen the terminal.
    """

    def __init__(self, master: int, log: BoundedLog) -> None:
        self.master = master
        self._log = log

    def copy(self) -> None:
        """Moves available output to the log."""
        self._log.write(os.read(self.master, 65536))

    def drain(self, limit_s: float = DRAIN_S) -> None:
        """Moves the rest of the output to the log; bounded, because a stray may print for ever."""
        deadline = time.monotonic() + limit_s
        while readable(self.master, limit_s=0) and time.monotonic() < deadline:
            self.copy()
