"""tqdm's monitor and lock, which most preparations leave behind: the one would end at a fork, the other be shared."""

from __future__ import annotations

import sys
from typing import Any

NUM_SEMAPHORES = 1
"""Of its lock."""


def _tqdm() -> Any:
    """The module of the bars; None where it has drawn no bar yet, or is none that we know."""
    module = sys.modules.get("tqdm.std")
    names = ("tqdm", "TqdmDefaultWriteLock")
    return module if all(hasattr(module, name) for name in names) else None


def num_semaphores() -> int:
    """Semaphores that this process has for them."""
    module = _tqdm()
    return NUM_SEMAPHORES if getattr(getattr(module, "TqdmDefaultWriteLock", None), "mp_lock", None) else 0


def end_monitor() -> None:
    """Ends the thread that watches the bars; the next bar starts another."""
    monitor = getattr(getattr(_tqdm(), "tqdm", None), "monitor", None)
    if monitor is not None:
        monitor.exit()


def renew_lock() -> None:
    """Gives this process a lock of its own: a trial that is killed while it prints would hold the others' for ever."""
    module = _tqdm()
    if module is None or not num_semaphores():
        return
    lock_class = module.TqdmDefaultWriteLock
    is_in_use = isinstance(getattr(module.tqdm, "_lock", None), lock_class)
    del lock_class.mp_lock
    if is_in_use:
        module.tqdm.set_lock(lock_class())
