"""Host memory of this process and its workers at the end of the window, read after the clock has stopped."""

from __future__ import annotations

import os
from pathlib import Path

from autotune.process_memory import held_memory_bytes


def held_bytes() -> int | None:
    """Anonymous and shared memory of this process and its direct children, each page counted once.

    The servers that it was forked from, if it was, share the pages of its imports, and of its beginning. None where the
    kernel does not say.
    """
    servers = [int(pid) for pid in os.environ.get("AUTOTUNE_SERVER_PIDS", "").split()]
    return held_memory_bytes((os.getpid(), *_children()), servers=servers) or None


def _children() -> list[int]:
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    except OSError:
        return []
    return [int(pid) for pid in text.split()]
