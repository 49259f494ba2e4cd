"""Memory of a trial's whole tree on the host: anonymous and shared pages, each counted once, mapped files not.

The sum of resident sizes counts pages that forked workers share again and again (measured: 3.8 times too much), so the
figure is the proportional one. Reading it walks page tables and disturbs the trial; the cheap upper bound from
/proc/PID/status decides when the costly one is needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

NEAR_CAP = 0.85
"""Share of the cap at which the cheap bound no longer suffices."""
COSTLY_EVERY_S = 2.0
"""The proportional reading is taken this often away from the cap, so that a peak is reported at all."""
NEAR_EVERY_S = 0.3
"""And this often near it: a tree of forked workers can be near by the cheap bound for all of its window."""
_COSTLY_KEYS = (b"Pss_Anon:", b"Pss_Shmem:")
_CHEAP_KEYS = (b"RssAnon:", b"RssShmem:")
PROC = Path("/proc")


def proportional_bytes(pids: Iterable[int], proc: Path = PROC) -> int:
    """Anonymous and shared memory of the processes, pages that several share divided among them."""
    return sum(_read(proc / str(pid) / "smaps_rollup", _COSTLY_KEYS) for pid in pids)


def upper_bound_bytes(pids: Iterable[int], proc: Path = PROC) -> int:
    """At least as much as `proportional_bytes`, and cheap: shared pages are counted in every process."""
    return sum(_read(proc / str(pid) / "status", _CHEAP_KEYS) for pid in pids)


def num_killed_by_kernel(proc: Path = PROC) -> int | None:
    """Processes that the kernel ended for want of memory since it started; None where it does not say."""
    try:
        lines = (proc / "vmstat").read_bytes().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(b"oom_kill ")), None)


def _read(path: Path, keys: tuple[bytes, ...]) -> int:
    try:
        lines = path.read_bytes().splitlines()  # Bytes: the name of a process, which is in there, is any.
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(keys))


class TreeMemory:
    """Watches a tree against a cap, at most a few readings a second."""

    def __init__(self, cap_bytes: int, now: Callable[[], float] = time.monotonic, proc: Path = PROC) -> None:
        self.peak_bytes = 0
        """Highest proportional reading so far."""
        self._cap_bytes = cap_bytes
        self._now = now
        self._proc = proc
        self._costly_at = -COSTLY_EVERY_S

    def check(self, pids: list[int], *, is_quiet: bool) -> bool:
        """Reads the tree; whether it is over the cap.

        Args:
            pids: The processes of the tree now.
            is_quiet: Do not disturb: the window is open, so only a tree near its cap gets the costly reading.
        """
        since_s = self._now() - self._costly_at
        is_near = upper_bound_bytes(pids, self._proc) > NEAR_CAP * self._cap_bytes
        is_due = since_s >= NEAR_EVERY_S if is_near else not is_quiet and since_s >= COSTLY_EVERY_S
        if not is_due:
            return False
        used = proportional_bytes(pids, self._proc)
        self._costly_at = self._now()
        self.peak_bytes = max(self.peak_bytes, used)
        return used > self._cap_bytes
