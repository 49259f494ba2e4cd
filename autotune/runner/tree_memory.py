"""Memory of a trial's tree on the host: anonymous and shared pages, counted once, without mapped files.

`process_memory.held_memory_bytes` gives the proportional figure. The reading walks page tables and disturbs the trial,
so a cheap upper bound from /proc/PID/status decides when a proportional reading is needed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autotune.host import PROC, SHARED_MEMORY
from autotune.process_memory import held_memory_bytes, open_shared_bytes, resident_bytes

NEAR_CAP = 0.85
"""Share of the cap above which the cheap bound no longer suffices."""
COSTLY_EVERY_S = 2.0
"""Time between two proportional readings far from the cap, for the report of a peak."""
NEAR_EVERY_S = 0.3
"""Time between two proportional readings near the cap: a tree of forked workers can stay near the cap by the cheap
bound for all of the window."""
SHARED_MEMORY_RESERVE = 0.02
"""Share of /dev/shm to leave free: on a full one, SIGBUS kills all writers, the user's other jobs included."""


def upper_bound_bytes(pids: Iterable[int], proc: Path = PROC) -> int:
    """A cheap upper bound of the mapped part of `held_memory_bytes`: shared pages count in every process."""
    return sum(sum(resident_bytes(proc / str(pid))) for pid in pids)


def num_killed_by_kernel(proc: Path = PROC) -> int | None:
    """Processes that the kernel has killed for lack of memory since its start; None without a counter."""
    try:
        lines = (proc / "vmstat").read_bytes().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(b"oom_kill ")), None)


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """The room of /dev/shm."""

    total_bytes: int
    free_bytes: int


def shared_memory(pids: Sequence[int] = ()) -> SharedMemory | None:
    """The room of /dev/shm now, in the view of the first process; None without a /dev/shm.

    A trial with layers has a /dev/shm of its own, with the room that the system's had.
    """
    roots = (f"/proc/{pid}/root" for pid in pids)
    for root in (*roots, ""):
        with suppress(OSError):
            status = os.statvfs(f"{root}{SHARED_MEMORY}")
            return SharedMemory(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)
    return None


class TreeMemory:
    """Watches a tree against a cap, at most a few readings a second."""

    def __init__(
        self,
        cap_bytes: int,
        now: Callable[[], float] = time.monotonic,
        proc: Path = PROC,
        shared_memory: Callable[[Sequence[int]], SharedMemory | None] = shared_memory,
    ) -> None:
        self.peak_bytes = 0
        """Highest proportional reading so far."""
        self.last_bytes: int | None = None
        """The last proportional reading; None before the first."""
        self.is_shared_memory_full = False
        """Whether the last reading found the shared memory full because of the tree."""
        self._shared_memory = shared_memory
        self._shared_before = shared_memory(())
        self._cap_bytes = cap_bytes
        self._now = now
        self._proc = proc
        self._costly_at = -COSTLY_EVERY_S

    def begin_anew(self) -> None:
        """Forgets the peak, for another measurement of the same tree."""
        self.peak_bytes, self.last_bytes, self.is_shared_memory_full = 0, None, False
        self._costly_at = -COSTLY_EVERY_S

    def check(self, pids: Sequence[int], *, is_quiet: bool, servers: Sequence[int] = ()) -> bool:
        """Reads the tree; True when the tree is over the cap.

        Args:
            pids: The processes of the tree now.
            is_quiet: Whether the window is open; then only a tree near the cap gets a proportional reading.
            servers: Processes that the tree was forked from.
        """
        since_s = self._now() - self._costly_at
        shared_growth = self._look_at_shared_memory(pids)
        is_near = upper_bound_bytes(pids, self._proc) + shared_growth > NEAR_CAP * self._cap_bytes
        is_due = since_s >= NEAR_EVERY_S if is_near else not is_quiet and since_s >= COSTLY_EVERY_S
        if not is_due:
            return False
        used = held_memory_bytes(pids, self._proc, servers=servers)
        self._costly_at = self._now()
        self.last_bytes = used
        self.peak_bytes = max(self.peak_bytes, used)
        return used > self._cap_bytes

    def _look_at_shared_memory(self, pids: Sequence[int]) -> int:
        """Bytes written to shared memory since the start of the trial, by all processes."""
        now, before = self._shared_memory(pids), self._shared_before
        if now is None or before is None:
            return 0
        growth = max(0, before.free_bytes - now.free_bytes)
        reserve = SHARED_MEMORY_RESERVE * now.total_bytes
        is_filled = now.free_bytes < reserve and growth > reserve
        self.is_shared_memory_full = is_filled and open_shared_bytes(pids, self._proc) > growth / 2
        return growth
