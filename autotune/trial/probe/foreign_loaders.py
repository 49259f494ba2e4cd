"""Whether a script without a torch DataLoader may read ahead in a way that nobody here sees."""

from __future__ import annotations

import multiprocessing
import sys
import threading

LIBRARIES = ("nvidia.dali", "tensorflow", "ffcv", "petastorm", "torchdata", "ray.data", "mxnet.io", "grain")
"""Loaders with queues of their own, which are filled by native threads."""
UNSEEN_QUEUE = 16
"""Batches that such a queue is taken to hold: usual depths are 2 to 16."""
HELPERS = ("tqdm", "TMonitor", "pydevd", "asyncio")
"""Threads of tools that read no data, by the beginning of their names."""


def may_read_ahead() -> bool:
    """Whether a queue may be full by now: such a loader is imported, or other threads or processes run."""
    if any(name in sys.modules for name in LIBRARIES) or multiprocessing.active_children():
        return True
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    return any(not thread.name.startswith((*HELPERS, "Dummy")) for thread in others)
