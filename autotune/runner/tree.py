"""The processes of one trial, known by pid and start time, and their end by those alone.

The warden ends its tree itself. This is for what it cannot do: be killed.
"""

from __future__ import annotations

import signal
import time
from contextlib import suppress

import psutil

READ_EVERY_S = 0.25
"""Between two readings of the process table."""


class Tree:
    """A process and all below it, remembered even after they moved away."""

    def __init__(self, root_pid: int) -> None:
        self._root_pid = root_pid
        self._known: dict[int, psutil.Process] = {}
        self._read_at = 0.0

    def pids(self) -> list[int]:
        """Process ids below the root, its own left out; at most a quarter of a second old."""
        if time.monotonic() - self._read_at >= READ_EVERY_S:
            self._read_at = time.monotonic()
            with suppress(psutil.Error):
                for process in psutil.Process(self._root_pid).children(recursive=True):
                    self._known.setdefault(process.pid, process)
            self._known = {pid: process for pid, process in self._known.items() if process.is_running()}
        return list(self._known)

    def end(self) -> None:
        """Kills what is left of the tree; by pid and start time, so never a stranger's process."""
        for process in self._known.values():
            with suppress(psutil.Error):
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    process.send_signal(signal.SIGKILL)
