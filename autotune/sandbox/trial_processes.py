"""The processes of one trial, known by pid and start time, and their end by those alone.

The supervisor ends its tree itself. This is for what it cannot do: be killed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from autotune.sandbox.process_tree import TIDY_LIMIT_S, tidies_up

READ_EVERY_S = 0.25
"""Between two readings of the process table."""
STRAYS_LIMIT_S = 2.0
NUM_EMPTY_LOOKS = 3
"""One look may miss a process that forks and ends while we look."""
_HAS_CHILDREN_FILES = Path("/proc/self/task", str(os.getpid()), "children").exists()


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
            self._known = {pid: process for pid, process in self._known.items() if process.is_running()}
            for pid in _below(self._root_pid):
                if pid not in self._known:
                    with suppress(psutil.Error):
                        self._known[pid] = psutil.Process(pid)
        return list(self._known)

    def end(self) -> None:
        """Kills what is left of the tree but what tidies up; by pid and start time, so never a stranger's process."""
        for process in self._known.values():
            if not tidies_up(process.pid):
                _send(process, signal.SIGKILL)


def end_strays(folder: Path, on_stopped: Callable[[Sequence[int]], None] = lambda pids: None) -> None:
    """Kills the processes of a trial, or of a server of trials, in this folder, wherever they are; bounded in time.

    They carry its name in their environment, so they are found even when all between them and us are gone. Those that
    tidy up after the others are given the time for it.

    Args:
        folder: Of the trial, or of all.
        on_stopped: Told of processes that are about to be killed, and are stopped.
    """
    began = time.monotonic()
    deadline, tidy_until = began + STRAYS_LIMIT_S, began + TIDY_LIMIT_S
    num_empty = 0
    while num_empty < NUM_EMPTY_LOOKS and time.monotonic() < deadline:
        strays = [process for stray in _started_in(folder) for process in _stopped(stray)]
        num_empty = 0 if strays else num_empty + 1
        on_stopped([process.pid for process in strays])
        spared = {process for process in strays if time.monotonic() < tidy_until and tidies_up(process.pid)}
        for process in strays:
            _send(process, signal.SIGCONT if process in spared else signal.SIGKILL)
        if spared:
            time.sleep(0.002)


def _stopped(root: psutil.Process) -> Iterator[psutil.Process]:
    """A process and all below it, stopped from the top, so that none starts another that is not seen."""
    queue = [root]
    while queue:
        process = queue.pop()
        _send(process, signal.SIGSTOP)
        yield process
        for pid in _children(process.pid):
            with suppress(psutil.Error):
                queue.append(psutil.Process(pid))


def _started_in(folder: Path) -> Iterator[psutil.Process]:
    marks = [name + os.fsencode(folder) for name in (b"AUTOTUNE_TRIAL=", b"AUTOTUNE_SERVER=")]
    for pid in sorted(psutil.pids(), reverse=True):
        with suppress(OSError, psutil.Error):
            variables = Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
            if any(text == mark or text.startswith(mark + b"/") for text in variables for mark in marks):
                yield psutil.Process(pid)


def _below(root_pid: int) -> list[int]:
    """Process ids below the root. The kernel's own lists cost what the tree has, not what the machine runs."""
    if not _HAS_CHILDREN_FILES:
        with suppress(psutil.Error):
            return [process.pid for process in psutil.Process(root_pid).children(recursive=True)]
        return []
    found, queue = [], [root_pid]
    while queue:
        children = _children(queue.pop())
        found.extend(children)
        queue.extend(children)
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with suppress(OSError):
        for task in Path("/proc", str(pid), "task").iterdir():
            with suppress(OSError):
                children.extend(map(int, (task / "children").read_bytes().split()))
    return children


def _send(process: psutil.Process, signum: int) -> None:
    """Signals through a descriptor of the process, opened before its start time is compared: no other can be meant."""
    with suppress(psutil.Error, OSError):
        if not hasattr(os, "pidfd_open"):
            process.send_signal(signum)
            return
        descriptor = os.pidfd_open(process.pid)
        try:
            if process.is_running():
                signal.pidfd_send_signal(descriptor, signum)
        finally:
            os.close(descriptor)
