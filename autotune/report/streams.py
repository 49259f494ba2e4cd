"""Standard output for results and standard error for messages; a search survives the end of either."""

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
    """Makes the three standard streams safe to use: closed streams lead to /dev/null, every character is printable.

    A closed descriptor would be reused for the next opened file, which may be the database.

    Args:
        mask: Hides the secrets in all text written through this module from now on; None leaves the text unchanged.
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
    """The text with secrets hidden by the mask given to `prepare`."""
    return _masks[0](text) if _masks else text


def write_result(text: str) -> None:
    """Writes the result of a command to standard output; silent when the reader has left.

    Raises:
        HostError: When the result cannot be written, for instance to a full disk.
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
    """True for a stream to a terminal, even to a closed terminal, for which `isatty` is false."""
    try:
        return stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def is_watched() -> bool:
    """True when standard output is a person's terminal."""
    try:
        return sys.stdout.isatty()
    except ValueError:
        return False


def say(text: str) -> None:
    """Writes lines to standard error, for people; without control characters, which a script may have chosen."""
    BestEffortStream(sys.stderr).write(printable(text) + "\n")


def printable(text: str) -> str:
    """The lines without control characters, which could change what a terminal shows of the rest."""
    return "".join(char for char in text if char.isprintable() or char in "\n\t")


class BestEffortStream(io.TextIOBase):
    """Standard error for people. Text is lost silently when the reader has left or the disk is full.

    Args:
        stream: Destination of the text.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_lost = False

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Encoding of the stream below."""
        return self._stream.encoding or "ascii"

    def write(self, text: str) -> int:
        """Writes and flushes; ignores failures."""
        if not self._is_lost:
            try:
                self._stream.write(masked(text))
                self._stream.flush()
            except (OSError, ValueError):
                self._is_lost = True
                lead_nowhere(self._stream)
        return len(text)

    def flush(self) -> None:
        """Does nothing: every write is flushed."""

    def isatty(self) -> bool:
        """True when a person watches."""
        try:
            return self._stream.isatty()
        except ValueError:
            return False

    def fileno(self) -> int:
        """Descriptor of the stream below."""
        return self._stream.fileno()


def lead_nowhere(stream: IO[str]) -> None:
    """Redirects a stream, including its buffered text, to /dev/null.

    The interpreter flushes the buffer once more at its end; a second failure would change the exit code.
    """
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
