"""Counts the batches of loaders that are no torch DataLoader: DALI, torchdata.nodes, SPDL and FFCV."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any

from autotune.trial.torch.batch_structure import leading_size
from autotune.trial.torch.patching import wrap

CLASSES = (
    ("DALI", "nvidia.dali.plugin.pytorch", "DALIGenericIterator"),
    ("DALI", "nvidia.dali.plugin.base_iterator", "_DaliBaseIterator"),
    ("torchdata.nodes", "torchdata.nodes.base_node", "BaseNode"),
    ("SPDL", "spdl.pipeline._pipeline", "PipelineIterator"),
    ("FFCV", "ffcv.loader.epoch_iterator", "EpochIterator"),
)
"""Library, module and class of the iterators with a `__next__` that gives batches."""

OnBatch = Callable[[int, float], None]
"""Called with the samples of a batch, and the seconds of waiting for the batch."""


class ForeignBatches:
    """Watches the iterators of foreign loaders in the training thread.

    Args:
        on_batch: Called for every batch with a countable number of samples.
    """

    def __init__(self, on_batch: OnBatch) -> None:
        self.library = ""
        """Library of the latest batch; empty before the first batch."""
        self._on_batch = on_batch
        self._is_inside = threading.local()
        self._wrapped: set[type] = set()

    def attach(self, thread: int) -> None:
        """Wraps the iterators of all libraries imported by now; may be called again after further imports.

        Args:
            thread: Identifier of the training thread; batches taken by other threads are parts of a queue.
        """
        for library, module, name in CLASSES:
            cls = getattr(sys.modules.get(module), name, None)
            if isinstance(cls, type) and cls not in self._wrapped and hasattr(cls, "__next__"):
                self._wrapped.add(cls)
                wrap(cls, "__next__", self._counting(library, thread))

    def _counting(self, library: str, thread: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def next_batch(iterator: Any, *args: Any, **kwargs: Any) -> Any:
                # A node of torchdata asks further nodes, each by the same method.
                if threading.get_ident() != thread or getattr(self._is_inside, "is_set", False):
                    return original(iterator, *args, **kwargs)
                self._is_inside.is_set = True
                began = perf_counter()
                try:
                    batch = original(iterator, *args, **kwargs)
                finally:
                    self._is_inside.is_set = False
                size = samples_of(batch)
                if size:
                    self.library = library
                    self._on_batch(size, perf_counter() - began)
                return batch

            return next_batch

        return make


def samples_of(batch: Any) -> int:
    """Samples of a batch by the leading size of its tensors; DALI gives a list with a dict for each pipeline."""
    if isinstance(batch, list) and batch and all(isinstance(each, dict) for each in batch):
        return sum(leading_size(each) or 0 for each in batch)
    return leading_size(batch) or 0
