"""Standard output for the result, standard error for the talk; neither can stop a search by going away."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import sys
from collections.abc import Callable
from typing import IO, TextIO

from autotune.errors import HostError

_masks: list[Callable[[str], str]] = []


def prepare(mask: Callable[[str], str] | None = None) -> None:
    """Makes the three standard streams safe to use: closed ones lead nowhere, no character is unprintable.

    A closed descriptor would be given to the next file that is opened, which may be the database.

    Args:
        mask: Hides the secrets in all text that is written through this module from now on; None leaves it as it is.
    """
    _masks[:] = [] if mask is None else [mask]
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: PTH123, SIM115 - kept for the life of the process
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def masked(text: str) -> str:
    """The text as it may be shown, by the mask that `prepare` was given."""
    return _masks[0](text) if _masks else text


def write_result(text: str) -> None:
    """Writes the result of a verb to standard output. Where the reader has left, nothing is said.

    Raises:
        HostError: It cannot be written, for instance because the disk is full.
    """
    try:
        sys.stdout.write(masked(text))
        sys.stdout.flush()
    except BrokenPipeError:
        lead_nowhere(sys.stdout)
    except OSError as error:
        is_reader_gone = error.errno == errno.EIO and _is_terminal(sys.stdout)
        lead_nowhere(sys.stdout)
        if is_reader_gone:
            return
        hint = "Send it elsewhere; what a search has found is in the database: see autotune best."
        raise HostError(f"The result cannot be written: {error.strerror}.", hint) from error


def _is_terminal(stream: TextIO) -> bool:
    """Whether a stream leads to a terminal, or led to one that is gone: that no longer says that it is one."""
    try:
        return stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def is_watched() -> bool:
    """Whether standard output is a person's terminal."""
    try:
        return sys.stdout.isatty()
    except ValueError:
        return False


def say(text: str) -> None:
    """Writes one line to standard error, for people."""
    Talk(sys.stderr).write(text + "\n")


class Talk(io.TextIOBase):
    """Standard error for people. When its reader has left, or its disk is full, what is said is lost, no more.

    Args:
        stream: Where the text goes.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_lost = False

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Encoding of the stream below."""
        return self._stream.encoding or "ascii"

    def write(self, text: str) -> int:
        """Writes and flushes; says nothing of a failure."""
        if not self._is_lost:
            try:
                self._stream.write(masked(text))
                self._stream.flush()
            except (OSError, ValueError):
                self._is_lost = True
                lead_nowhere(self._stream)
        return len(text)

    def flush(self) -> None:
        """Nothing: every write is flushed."""

    def isatty(self) -> bool:
        """Whether a person watches."""
        try:
            return self._stream.isatty()
        except ValueError:
            return False

    def fileno(self) -> int:
        """Descriptor of the stream below."""
        return self._stream.fileno()


def lead_nowhere(stream: IO[str]) -> None:
    """Sends what is written to a stream from now on to nowhere, and what it still holds too.

    The interpreter writes that once more when it ends; if it failed again the exit code would be another.
    """
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
