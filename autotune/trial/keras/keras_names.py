"""All use of Keras' private names, each with a check and a fallback."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from time import perf_counter
from typing import Any

from autotune.trial.keras.fit_data import BatchFeed

MODULE, NAME = "keras.src.trainers.epoch_iterator", "EpochIterator"


def watch_batches(feed: BatchFeed, is_training: Callable[[], bool]) -> bool:
    """Times the wait for batches on the torch engine, whose loop takes batches before a call of the training function.

    With the cached batch in use, the loop takes no batch.

    Args:
        feed: Gets the seconds.
        is_training: Whether the loop asks for training, and not for a validation.

    Returns:
        False when this Keras has no such loop: every wait then counts as 0, and real batches take the place of
        the cached batch.
    """
    try:
        iterator: Any = getattr(importlib.import_module(MODULE), NAME)
        original = iterator.__next__
    except (ImportError, AttributeError):
        return False

    @functools.wraps(original)
    def next_batches(self: Any) -> Any:
        if not is_training():
            return original(self)
        if feed.cached is not None and feed.uses_cache() and hasattr(self, "_epoch_iterator"):
            begin, end, _ = next(self._epoch_iterator)
            return begin, end, [feed.cached] * self.steps_per_execution
        began = perf_counter()
        result = original(self)
        feed.list_wait_s += perf_counter() - began
        return result

    iterator.__next__ = next_batches
    return True
