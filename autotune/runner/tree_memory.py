"""Memory of a trial's whole tree on the host: anonymous and shared pages, each counted once, mapped files not.

The figure is the proportional one of `process_memory.held_memory_bytes`. Reading it walks page tables and disturbs the
trial; the cheap upper bound from /proc/PID/status decides when the costly one is needed.
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
"""Share of the cap at which the cheap bound no longer suffices."""
COSTLY_EVERY_S = 2.0
"""The proportional reading is taken this often away from the cap, so that a peak is reported at all."""
NEAR_EVERY_S = 0.3
"""And this often near it: a tree of forked workers can be near by the cheap bound for all of its window."""
SHARED_MEMORY_RESERVE = 0.02
"""Share of /dev/shm that is left alone: where it is full, writers are killed by SIGBUS, the user's other jobs too."""


def upper_bound_bytes(pids: Iterable[int], proc: Path = PROC) -> int:
    """More than the mapped part of `held_memory_bytes`, and cheap: shared pages are counted in every process."""
    return sum(sum(resident_bytes(proc / str(pid))) for pid in pids)


def num_killed_by_kernel(proc: Path = PROC) -> int | None:
    """Processes that the kernel ended for want of memory since it started; None where it does not say."""
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
    """The room of /dev/shm now, as the first of these processes sees it; None where there is no such place.

    A trial with layers has shared memory of its own there, which has as much room as the system's had.
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
        """Whether the last reading found no room for the next batch in shared memory, and the tree the cause of it."""
        self._shared_memory = shared_memory
        self._shared_before = shared_memory(())
        self._cap_bytes = cap_bytes
        self._now = now
        self._proc = proc
        self._costly_at = -COSTLY_EVERY_S

    def check(self, pids: Sequence[int], *, is_quiet: bool, servers: Sequence[int] = ()) -> bool:
        """Reads the tree; whether it is over the cap.

        Args:
            pids: The processes of the tree now.
            is_quiet: Do not disturb: the window is open, so only a tree near its cap gets the costly reading.
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
        """Bytes by which shared memory has filled since the trial began, whoever it was."""
        now, before = self._shared_memory(pids), self._shared_before
        if now is None or before is None:
            return 0
        growth = max(0, before.free_bytes - now.free_bytes)
        reserve = SHARED_MEMORY_RESERVE * now.total_bytes
        is_filled = now.free_bytes < reserve and growth > reserve
        self.is_shared_memory_full = is_filled and open_shared_bytes(pids, self._proc) > growth / 2
        return growth
