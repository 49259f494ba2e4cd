"""Ends processes left behind by a finished search, and names the devices held.

The worker is the subreaper of its searches: an orphan of a trial becomes a child of the worker. Loader workers of a
killed trial would otherwise hold memory of the device until the next boot.
"""

from __future__ import annotations

import os
from pathlib import Path

from autotune.sandbox.process_tree import Descendants, children_of

GRACE_S = 2.0
"""Between SIGTERM and SIGKILL, in seconds."""
DEVICES = "/dev/nvidia"


def end_leftovers() -> list[str]:
    """Ends all descendants of this process; a line for each ended process that held a device."""
    left = _below(os.getpid())
    lines = [
        f"ended process {pid} ({_name(pid)}), which a search left behind on {', '.join(held)}"
        for pid in left
        if (held := held_devices(pid))
    ]
    if left:
        Descendants().end(grace_s=GRACE_S, meanwhile=lambda: None)
    return lines


def held_devices(pid: int, prefix: str = DEVICES) -> list[str]:
    """Device files that a process has open, by name; empty for a process of another user."""
    found = set()
    try:
        for entry in Path("/proc", str(pid), "fd").iterdir():
            target = os.readlink(entry)  # noqa: PTH115  a Path would cost more
            if target.startswith(prefix):
                found.add(target)
    except OSError:
        return sorted(found)
    return sorted(found)


def _below(root: int) -> list[int]:
    found, queue = [], children_of(root)
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue += children_of(pid)
    return found


def _name(pid: int) -> str:
    try:
        return Path("/proc", str(pid), "comm").read_text().strip()
    except OSError:
        return "gone"
