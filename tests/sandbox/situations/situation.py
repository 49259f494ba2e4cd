"""One situation: a script body, and the modes of protection in which the script runs."""

from __future__ import annotations

from dataclasses import dataclass

BEGINNING = """
import ctypes, os, pretend, signal, socket, stat, subprocess, sys, time
from contextlib import suppress
tuner, user = int(sys.argv[1]), sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)

def sh(text, **more):
    return subprocess.run(["sh", "-c", text], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **more).returncode

def refused(call, *arguments):
    try:
        call(*arguments)
    except OSError:
        return
    raise SystemExit(f"{call} was not refused")

def stay():
    os.execve(sys.executable, [sys.executable, "-c", PROGRAM, "by-a-trial"], {})

PROGRAM = "import time; time.sleep(300)"
"""
ENDING = "\npretend.report()\n"
LAYERS, LANDLOCK, NONE = "layers", "landlock", "none"
EVERYWHERE = (LAYERS, LANDLOCK, NONE)
SIGNALS = (LAYERS, LANDLOCK)
"""Modes for scripts that signal processes of others: Landlock withholds signals from version 6 on."""


@dataclass(frozen=True, slots=True)
class Situation:
    """One action of a script before a good report."""

    name: str
    body: str
    """Python, after `BEGINNING`; an uncaught error ends the script."""
    outcome: str = "ok"
    """Outcome under layers, where the script sees the effect of its own writes, or the refusal that it expects."""
    needs_root: bool = False
    """Whether an ordinary user lacks the right to try."""
    modes: tuple[str, ...] = EVERYWHERE
    """Modes with a promise; in any other mode the script would hurt the machine or other users' programs."""
    is_quick: bool = False
    """Whether the situation belongs to the quick tier."""

    @property
    def script(self) -> str:
        """The whole file."""
        return f"{BEGINNING}{self.body}{ENDING}"
