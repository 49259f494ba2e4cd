"""Finds processes of a trial with torch loaded, but without the trial's variables, and thus without a measurement."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable
from pathlib import Path

from autotune.host import PROC
from autotune.protocol.environment import TRIAL

LOOK_EVERY_S = 1.0
MARK = os.fsencode(f"{TRIAL}=")
LIBRARY = b"libtorch"
MAX_WORDS = 200


class UnseenProcesses:
    """Finds processes with torch loaded, but without the variables of the trial.

    Args:
        proc: Folder in which the kernel shows processes.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._looked_at = 0.0
        self._command = ""

    def look(self, pids: Iterable[int]) -> None:
        """Looks at these processes, at most once a second, and remembers the first match."""
        if self._command or time.monotonic() - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = time.monotonic()
        self._command = next(filter(None, map(self._unseen, pids)), "")

    @property
    def sentence(self) -> str:
        """Reason for a trial without measurements, as a further sentence; empty without a match."""
        if not self._command:
            return ""
        return (
            f" {self._command} ran with torch and without the environment by which autotune measures: see that it is "
            "started without -E, -I and -S, and with the variables of the script that starts it."
        )

    def _unseen(self, pid: int) -> str:
        """Command of a process that trains unseen; empty for all other processes."""
        process = self._proc / str(pid)
        try:
            words = [word.decode(errors="replace") for word in (process / "cmdline").read_bytes().split(b"\0")[:-1]]
            is_marked = any(text.startswith(MARK) for text in (process / "environ").read_bytes().split(b"\0"))
            if not words or (is_marked and not ignores_environment(words)):
                return ""
            return shlex.join(words)[:MAX_WORDS] if LIBRARY in (process / "maps").read_bytes() else ""
        except OSError:
            return ""


def ignores_environment(command: Iterable[str]) -> str:
    """The option that makes Python ignore the environment or the site module; empty if the command has none.

    Args:
        command: Words of the command, beginning with the interpreter.
    """
    program, *rest = command
    if not Path(program).name.startswith("python"):
        return ""
    words = iter(rest)
    for word in words:
        if not word.startswith("-") or word == "-":
            return ""
        if word.startswith("--"):
            continue
        for place, letter in enumerate(word[1:], start=2):
            if letter in "EIS":
                return f"-{letter}"
            if letter in "cm":
                return ""
            if letter in "WX":
                if place == len(word):
                    next(words, "")  # The next word is the option's value, otherwise the rest of this word.
                break
    return ""
