"""A command run under a pseudo-terminal of fixed size, with all that it wrote and when."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class OpenStudy:
    """What was seen on the terminal."""

    code: int
    writes: tuple[tuple[float, str], ...]
    """(seconds since the start, text) in order."""
    wall_s: float

    @property
    def text(self) -> str:
        """All of it, cursor movements included."""
        return "".join(text for _, text in self.writes).replace("\r\n", "\n")


def run_in_terminal(
    command: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    columns: int = 80,
    lines: int = 40,
) -> OpenStudy:
    """Runs a command to its end with its three streams on one terminal.

    Args:
        command: The words.
        cwd: Where.
        environment: Variables beside those of this process.
        columns: Width of the terminal.
        lines: Its height.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    variables.update(TERM="xterm-256color", **(environment or {}))
    began = time.monotonic()
    process = subprocess.Popen(
        command, cwd=cwd, env=variables, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    writes = []
    try:
        while data := _read(ours):
            writes.append((time.monotonic() - began, data.decode(errors="replace")))
    finally:
        os.close(ours)
    return OpenStudy(code=process.wait(), writes=tuple(writes), wall_s=time.monotonic() - began)


def _read(descriptor: int) -> bytes:
    """What was written since; empty once nobody has the other end open."""
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:
        return b""
