"""The processes of one trial, known by pid and start time, and their end after the supervisor's death.

A living supervisor ends the tree itself. Standard library only.
"""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from autotune.protocol.environment import SERVER, TRIAL
from autotune.sandbox.process_tree import (
    HAS_LISTS_OF_CHILDREN,
    TIDY_LIMIT_S,
    all_pids,
    children_of,
    parents,
    started_at,
    tidies_up,
)

READ_EVERY_S = 0.25
"""Time between two readings of the process table."""
STRAYS_LIMIT_S = 2.0
NUM_EMPTY_LOOKS = 3
"""A single look may miss a process that forks and ends during the look."""


class Process(NamedTuple):
    """A process, now and after its end: the kernel may give the pid to another process, at a later start time."""

    pid: int
    started: str
    """Start time in the kernel's own unit."""

    @property
    def is_running(self) -> bool:
        """Whether the process exists."""
        return started_at(self.pid) == self.started

    def send(self, signum: int) -> None:
        """Signals the process, and never a later process with the same pid."""
        with suppress(OSError):
            if not hasattr(os, "pidfd_open"):
                if self.is_running:
                    os.kill(self.pid, signum)
                return
            descriptor = os.pidfd_open(self.pid)
            try:
                if self.is_running:  # Compared after the descriptor was opened.
                    signal.pidfd_send_signal(descriptor, signum)
            finally:
                os.close(descriptor)


def process_of(pid: int) -> Process | None:
    """The process with a pid; None without such a process."""
    started = started_at(pid)
    return Process(pid, started) if started is not None else None


class Tree:
    """All processes below a root process, including processes that left the tree since.

    Args:
        root_pid: Of the root, which may have ended.
    """

    def __init__(self, root_pid: int) -> None:
        self._root = process_of(root_pid)
        self._known: dict[int, Process] = {}
        self._read_at = 0.0

    def pids(self) -> list[int]:
        """Process ids below the root, without the root; at most a quarter of a second old."""
        if time.monotonic() - self._read_at >= READ_EVERY_S:
            self._read_at = time.monotonic()
            self._known = {pid: process for pid, process in self._known.items() if process.is_running}
            for pid in self._below_root():
                process = process_of(pid) if pid not in self._known else None
                if process is not None:
                    self._known[pid] = process
        return list(self._known)

    def _below_root(self) -> list[int]:
        """Process ids below the root now; none after the end of the root."""
        found = _below(self._root.pid) if self._root is not None else []
        # A root that still runs had the pid all the while; otherwise the list may be another process's.
        return found if self._root is not None and self._root.is_running else []

    def end(self) -> None:
        """Kills the rest of the tree, except processes that tidy up."""
        for process in self._known.values():
            if not tidies_up(process.pid):
                process.send(signal.SIGKILL)


def end_strays(folder: Path, on_stopped: Callable[[Sequence[int]], None] = lambda pids: None) -> None:
    """Kills the processes of a trial, or of a server of trials, wherever the processes are; bounded in time.

    A variable in the environment of every such process names the folder. Processes that tidy up get the time to do so.

    Args:
        folder: Of the trial, or of all trials.
        on_stopped: Called with the ids of stopped processes, before the processes are killed.
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
            process.send(signal.SIGCONT if process in spared else signal.SIGKILL)
        if spared:
            time.sleep(0.002)


def _stopped(root: Process) -> Iterator[Process]:
    """A process and all processes below. Each parent is stopped before its children are listed, so none is missed."""
    queue = [root]
    while queue:
        process = queue.pop()
        process.send(signal.SIGSTOP)
        yield process
        queue.extend(child for pid in children_of(process.pid) if (child := process_of(pid)) is not None)


def _started_in(folder: Path) -> Iterator[Process]:
    marks = [os.fsencode(f"{name}={folder}") for name in (TRIAL, SERVER)]
    for pid in sorted(all_pids(), reverse=True):
        try:
            variables = Path("/proc", str(pid), "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(text == mark or text.startswith(mark + b"/") for text in variables for mark in marks):
            process = process_of(pid)
            if process is not None:
                yield process


def _below(root_pid: int) -> list[int]:
    """Process ids below the root."""
    of = children_of if HAS_LISTS_OF_CHILDREN else _lists_of_children().__getitem__
    found, queue = [], [root_pid]
    while queue:
        children = of(queue.pop())
        found.extend(children)
        queue.extend(children)
    return found


def _lists_of_children() -> Mapping[int, list[int]]:
    """Process ids of the children of every process, from a single reading of the process table."""
    table: defaultdict[int, list[int]] = defaultdict(list)
    for pid, parent in parents():
        table[parent].append(pid)
    return table
