"""All processes below this one, found, signalled and ended. Standard library only: the warden's own.

The warden is the subreaper of what it starts: it becomes the parent of every orphan, so as long as anything is left it
has a child, and when it has none, nothing is left.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KILL_LIMIT_S = 5.0
"""Longest time to wait for the same killed processes: one that is stuck in a driver must not hold us up."""
HAS_PROC = Path("/proc/self/stat").exists()
HAS_LISTS_OF_CHILDREN = Path("/proc/self/task", str(os.getpid()), "children").exists()


def prctl(option: int, value: int) -> None:
    """Calls prctl where there is one; without it orphans cannot be found."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def children_of(pid: int) -> list[int]:
    """Process ids of the children of all threads of a process."""
    if not HAS_LISTS_OF_CHILDREN:
        return [child for child, parent in parents() if parent == pid]
    children: list[int] = []
    try:
        for task in Path("/proc", str(pid), "task").iterdir():
            children.extend(map(int, (task / "children").read_bytes().split()))
    except OSError:
        pass  # It ended meanwhile, and what it had started is ours now.
    return children


def parents() -> Iterator[tuple[int, int]]:
    """(pid, pid of its parent) of all processes, where the kernel keeps no lists of children."""
    if not HAS_PROC:
        table = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, check=False).stdout
        for line in table.splitlines():
            pid, parent = map(int, line.split())
            yield pid, parent
        return
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                # The name in parentheses is any bytes that the process chose.
                yield int(process.name), int((process / "stat").read_bytes().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                continue


def signal_tree(root: int, signum: int) -> list[int]:
    """Signals everything below `root`, a parent before its children; returns the process ids.

    A stopped parent starts nothing more, so its list of children is final when it is read.
    """
    found, queue = [], children_of(root)
    while queue:
        pid = queue.pop()
        send(pid, signum)
        found.append(pid)
        queue.extend(children_of(pid))
    return found


def send(pid: int, signum: int) -> None:
    """Signals a process, if it still exists and we may."""
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):
        return


class Descendants:
    """All that was started below this process, and how its own children ended."""

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        """Wait status of every child that ended."""

    def reap(self) -> bool:
        """Collects the children that ended; whether any is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.statuses[pid] = status

    def end(self, *, grace_s: float, meanwhile: Callable[[], None]) -> None:
        """Ends everything: SIGTERM, a bounded wait, SIGKILL until nothing is left.

        Stopping first keeps a tree that forks as fast as it is killed from getting away.

        Args:
            grace_s: Between SIGTERM and SIGKILL; 0 = no SIGTERM.
            meanwhile: Called again and again in that time.
        """
        if grace_s > 0:
            signal_tree(os.getpid(), signal.SIGTERM)
            deadline = time.monotonic() + grace_s
            while self.reap() and time.monotonic() < deadline:
                meanwhile()
                time.sleep(0.02)
        stuck: list[int] = []
        while self.reap():
            left = signal_tree(os.getpid(), signal.SIGSTOP)
            for pid in left:
                send(pid, signal.SIGKILL)
            if left != stuck:
                stuck, deadline = left, time.monotonic() + KILL_LIMIT_S
            elif time.monotonic() > deadline:
                return
            time.sleep(0.002)
