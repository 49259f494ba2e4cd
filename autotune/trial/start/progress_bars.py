"""tqdm's monitor thread, which a fork would end, and tqdm's lock, which forked processes would share."""

from __future__ import annotations

import sys
from typing import Any

NUM_SEMAPHORES = 1
"""Semaphores of tqdm's lock."""


def _tqdm() -> Any:
    """Tqdm's module; None before the first bar, and for an unknown version."""
    module = sys.modules.get("tqdm.std")
    names = ("tqdm", "TqdmDefaultWriteLock")
    return module if all(hasattr(module, name) for name in names) else None


def num_semaphores() -> int:
    """Semaphores of this process for tqdm."""
    module = _tqdm()
    return NUM_SEMAPHORES if getattr(getattr(module, "TqdmDefaultWriteLock", None), "mp_lock", None) else 0


def end_monitor() -> None:
    """Ends the thread that watches the bars; the next bar starts a new thread."""
    monitor = getattr(getattr(_tqdm(), "tqdm", None), "monitor", None)
    if monitor is not None:
        monitor.exit()


def renew_lock() -> None:
    """Gives this process a new lock: a trial killed while printing would hold a shared lock for ever."""
    module = _tqdm()
    if module is None or not num_semaphores():
        return
    lock_class = module.TqdmDefaultWriteLock
    is_in_use = isinstance(getattr(module.tqdm, "_lock", None), lock_class)
    del lock_class.mp_lock
    if is_in_use:
        module.tqdm.set_lock(lock_class())
