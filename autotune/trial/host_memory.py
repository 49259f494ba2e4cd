"""Host memory of this process and its workers at the end of the window, read after the clock has stopped."""

from __future__ import annotations

import os
from pathlib import Path


def held_bytes() -> int | None:
    """Anonymous and shared memory of this process and its direct children, pages that several share divided among them.

    None where the kernel does not say.
    """
    total = 0
    for pid in (os.getpid(), *_children()):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    return total or None


def _children() -> list[int]:
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    except OSError:
        return []
    return [int(pid) for pid in text.split()]
