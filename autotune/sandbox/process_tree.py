"""All processes below this process: found, signalled and ended. Standard library only: the supervisor loads this file.

The supervisor is the subreaper of all descendants, and so the parent of every orphan. A supervisor without children has
no descendants.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KILL_LIMIT_S = 5.0
"""Longest wait for the same killed processes: a process stuck in a driver must not hold up the tuner."""
TIDY_LIMIT_S = 1.0
"""Longest wait for processes that tidy up; such a process needs some milliseconds."""
WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals of job schedulers to every process of a job, some time before the end. The tuner answers for the trial."""
_TRACKER = b"from multiprocessing.resource_tracker import main"
_SHM_MANAGER = b"torch_shm_manager"
HAS_PROC = Path("/proc/self/stat").exists()
HAS_LISTS_OF_CHILDREN = Path("/proc/self/task", str(os.getpid()), "children").exists()
_STATE, _PARENT, _START = 0, 1, 19
"""Columns of /proc/PID/stat after the name in parentheses."""
_ENDED = b"Z"


def prctl(option: int, value: int) -> None:
    """Calls prctl on Linux. On other systems orphans cannot be found."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


@contextmanager
def warnings_held_back() -> Iterator[None]:
    """Blocks a scheduler's warnings for this thread, and for a process started inside until `ignore_signals`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, WARNINGS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals() -> None:
    """Makes this process deaf to requests to end, and unblocks all signals.

    A trial inherits the deafness for a scheduler's warnings, until the script sets a handler.
    """
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, *WARNINGS):
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def children_of(pid: int) -> list[int]:
    """Process ids of the children of all threads of a process."""
    if not HAS_LISTS_OF_CHILDREN:
        return [child for child, parent in parents() if parent == pid]
    children: list[int] = []
    with suppress(OSError):  # The process ended; the supervisor inherits the children.
        for task in Path("/proc", str(pid), "task").iterdir():
            with suppress(OSError):  # The thread ended.
                children.extend(map(int, (task / "children").read_bytes().split()))
    return children


def all_pids() -> list[int]:
    """Process ids of all processes."""
    if not HAS_PROC:
        return [int(pid) for (pid,) in _table("pid=")]
    return [int(process.name) for process in Path("/proc").iterdir() if process.name.isdigit()]


def parents() -> Iterator[tuple[int, int]]:
    """(pid, pid of the parent) of all processes; slower than the kernel's lists of children."""
    if not HAS_PROC:
        yield from ((int(pid), int(parent)) for pid, parent in _table("pid=,ppid="))
        return
    for pid in all_pids():
        columns = _columns(pid)
        if columns is not None:
            yield pid, int(columns[_PARENT])


def started_at(pid: int) -> str | None:
    """Start time of a process, as the kernel counts; None without such a process."""
    if not HAS_PROC:
        return next((" ".join(words[1:]) for words in _table("pid=,lstart=") if words[0] == str(pid)), None)
    columns = _columns(pid)
    return columns[_START].decode() if columns is not None else None


def parent_of(pid: int) -> int:
    """Process id of the parent of a process; 0 for a process that has ended or cannot be seen."""
    if not HAS_PROC:
        return next((parent for child, parent in parents() if child == pid), 0)
    columns = _columns(pid)
    return int(columns[_PARENT]) if columns is not None and columns[_STATE] != _ENDED else 0


def _columns(pid: int) -> list[bytes] | None:
    """Columns of /proc/PID/stat after the name, which may hold any bytes; None without such a process."""
    try:
        columns = Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return columns if len(columns) > _START else None


def _table(columns: str) -> list[list[str]]:
    """Rows of `ps`, for systems without /proc."""
    import subprocess  # Loads slowly; supervisors on Linux do without.

    text = subprocess.run(["ps", "-A", "-o", columns], capture_output=True, check=False).stdout.decode(errors="replace")
    return [line.split() for line in text.splitlines()]


def signal_tree(root: int, signum: int) -> list[int]:
    """Signals all processes below `root`, parents before children; returns the process ids.

    A stopped parent starts no more processes, so its list of children is final.
    """
    found, queue = [], children_of(root)
    while queue:
        pid = queue.pop()
        send(pid, signum)
        found.append(pid)
        queue.extend(children_of(pid))
    return found


def send(pid: int, signum: int) -> None:
    """Signals a process, if the process exists and this user may."""
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):
        return


def tidies_up(pid: int) -> bool:
    """Whether a process removes a program's files from shared memory after the program's end, and ends.

    Python starts such a process for named semaphores and named shared memory, torch for tensors. No other process knows
    for certain the program's files; killed with the program, the process leaves the files until the next boot.
    """
    try:
        words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0].endswith(_SHM_MANAGER) or any(word.startswith(_TRACKER) for word in words)


class Descendants:
    """All processes below this process, and the statuses of ended children.

    Args:
        on_stopped: Called with the ids of stopped processes, before the processes are killed.
    """

    def __init__(self, on_stopped: Callable[[Sequence[int]], None] = lambda pids: None) -> None:
        self.statuses: dict[int, int] = {}
        """Wait status of every ended child."""
        self._on_stopped = on_stopped
        self._stuck: list[int] = []
        """Processes that the latest kill has left."""
        self._gives_up_at = 0.0
        """Moment to leave `_stuck` alone, in seconds of `time.monotonic`."""

    def reap(self) -> bool:
        """Collects ended children; whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.statuses[pid] = status

    def end(self, *, grace_s: float, meanwhile: Callable[[], None]) -> None:
        """Ends all processes: SIGTERM, a bounded wait, then SIGKILL, again and again until no process is left.

        Processes at their clean-up (`tidies_up`) are left to finish. Every process is stopped before the kill, so a
        quickly forking tree cannot get away.

        Args:
            grace_s: Between SIGTERM and SIGKILL; 0 = no SIGTERM.
            meanwhile: Called repeatedly during the wait.
        """
        if grace_s > 0:
            signal_tree(os.getpid(), signal.SIGTERM)
            deadline = time.monotonic() + grace_s
            while self.reap() and time.monotonic() < deadline:
                meanwhile()
                time.sleep(0.02)
        self._kill(tidies_up)

    def let_tidy(self) -> None:
        """Waits for processes that tidy up, and ends these processes after `TIDY_LIMIT_S`."""
        deadline = time.monotonic() + TIDY_LIMIT_S
        while self.reap() and time.monotonic() < deadline:
            time.sleep(0.002)
        self._kill(lambda pid: False)

    def _kill(self, is_spared: Callable[[int], bool]) -> None:
        """Kills until only spared processes are left, or the same processes stay in a driver for `KILL_LIMIT_S`.

        Spared processes are stopped during the kill and continue afterwards. Processes that an earlier call has left
        are not waited for again: the tuner waits for the supervisor only so long.
        """
        while self.reap():
            left = signal_tree(os.getpid(), signal.SIGSTOP)
            spared = {pid for pid in left if is_spared(pid)}
            self._on_stopped(left)
            for pid in left:
                if pid not in spared:
                    send(pid, signal.SIGKILL)
            stuck = [pid for pid in left if pid not in spared]
            if stuck != self._stuck:
                self._stuck, self._gives_up_at = stuck, time.monotonic() + KILL_LIMIT_S
            if not stuck or time.monotonic() > self._gives_up_at:
                for pid in spared:
                    send(pid, signal.SIGCONT)
                return
            time.sleep(0.002)
