"""All processes below this one, found, signalled and ended. Standard library only: the supervisor's own.

The supervisor is the subreaper of its children: it becomes the parent of every orphan. It has a child as long as
anything is left, and when it has none, nothing is left.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KILL_LIMIT_S = 5.0
"""Longest time to wait for the same killed processes: one that is stuck in a driver must not hold us up."""
TIDY_LIMIT_S = 1.0
"""Longest time that is left to those that tidy up after the others: they need some milliseconds."""
_TRACKER = b"from multiprocessing.resource_tracker import main"
_SHM_MANAGER = b"torch_shm_manager"
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


def tidies_up(pid: int) -> bool:
    """Whether it removes from shared memory what its program left there, and ends, as soon as that is gone.

    Python starts such a process for semaphores and shared memory that have names, torch one for tensors. Only these
    know for certain what is their program's; where they are killed with it, it stays until the machine is restarted.
    """
    try:
        words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0].endswith(_SHM_MANAGER) or any(word.startswith(_TRACKER) for word in words)


class Descendants:
    """All that was started below this process, and how its own children ended.

    Args:
        on_stopped: Told of processes that are about to be killed, and are stopped.
    """

    def __init__(self, on_stopped: Callable[[Sequence[int]], None] = lambda pids: None) -> None:
        self.statuses: dict[int, int] = {}
        """Wait status of every child that ended."""
        self._on_stopped = on_stopped

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
        """Ends all but those that tidy up: SIGTERM, a bounded wait, SIGKILL until nothing else is left.

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
        self._kill(tidies_up)

    def let_tidy(self) -> None:
        """Waits for those that tidy up, which `end` has left; ends them too if it takes them long."""
        deadline = time.monotonic() + TIDY_LIMIT_S
        while self.reap() and time.monotonic() < deadline:
            time.sleep(0.002)
        self._kill(lambda pid: False)

    def _kill(self, is_spared: Callable[[int], bool]) -> None:
        """Kills again and again, until nothing is left but what is spared, or what is left stays in a driver.

        What is spared is stopped meanwhile and goes on afterwards, whichever it was.
        """
        stuck: list[int] = []
        while self.reap():
            left = signal_tree(os.getpid(), signal.SIGSTOP)
            spared = {pid for pid in left if is_spared(pid)}
            self._on_stopped(left)
            for pid in left:
                if pid not in spared:
                    send(pid, signal.SIGKILL)
            if left != stuck:
                stuck, deadline = left, time.monotonic() + KILL_LIMIT_S
            if spared.issuperset(left) or time.monotonic() > deadline:
                for pid in spared:
                    send(pid, signal.SIGCONT)
                return
            time.sleep(0.002)
