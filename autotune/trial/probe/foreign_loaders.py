"""Whether a script without a torch DataLoader may read ahead unseen."""

from __future__ import annotations

import multiprocessing
import sys
import threading

from autotune.trial.torch import torch_names

LIBRARIES = ("nvidia.dali", "tensorflow", "ffcv", "spdl", "petastorm", "torchdata", "ray.data", "mxnet.io", "grain")
"""Loaders with their own queues, filled by native threads."""
UNSEEN_QUEUE = 16
"""Assumed number of batches in an unseen queue: usual depths are 2 to 16."""
HELPERS = ("tqdm", "TMonitor", "pydevd", "asyncio", *torch_names.COMPILER_THREADS)
"""Threads of tools without data to read, by the beginning of the threads' names."""


def may_read_ahead() -> bool:
    """Whether a queue may be full by now: a library of LIBRARIES is imported, or more threads or processes run."""
    if any(name in sys.modules for name in LIBRARIES) or multiprocessing.active_children():
        return True
    known = {threading.main_thread(), *torch_names.compiler_threads()}
    others = [thread for thread in threading.enumerate() if thread not in known]
    return any(not thread.name.startswith((*HELPERS, "Dummy")) for thread in others)
