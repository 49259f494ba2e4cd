"""Counts the batches of loaders that are no torch DataLoader: DALI, torchdata.nodes, SPDL and FFCV.

For the compute-only rate the training thread gets the first batch again and again; the loader's own iterator waits.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol

from autotune.trial.torch.batch_structure import batch_bytes, clone_batch, leading_size
from autotune.trial.torch.patching import wrap

CLASSES = (
    ("DALI", "nvidia.dali.plugin.pytorch", "DALIGenericIterator"),
    ("DALI", "nvidia.dali.plugin.pytorch", "DALIRaggedIterator"),
    ("torchdata.nodes", "torchdata.nodes.base_node", "BaseNode"),
    ("SPDL", "spdl.pipeline._pipeline", "PipelineIterator"),
    ("FFCV", "ffcv.loader.epoch_iterator", "EpochIterator"),
)
"""Library, module and class of the iterators with a `__next__` that gives batches."""

OnBatch = Callable[[int, float], None]
"""Called with the samples of a batch, and the seconds of waiting for the batch."""


NUM_NOTED = 64
"""Batches with a note of their bytes."""
MAX_AHEAD = 2
"""Cached batches without a backward pass between them; a script that takes more only reads, and gets real batches."""
UNEVEN_BATCHES = 0.01
"""Relative difference in bytes from which batches count as different."""


class Deliveries(Protocol):
    """Notes cached batches by the training device's clock; the device may be busy while the host copies a batch."""

    def begin_delivery(self) -> Any:
        """Gives a mark before a batch is handed out."""

    def foreign_delivered(self, num_samples: int, began: Any) -> None:
        """Notes a batch handed out since the mark `began`."""


class ForeignBatches:
    """Watches the iterators of foreign loaders in the training thread.

    Args:
        on_batch: Called for every real batch with a countable number of samples.
        cached: Gives the notes of cached batches; None while the training thread gets real batches.
        num_backwards: Backward passes so far.
    """

    def __init__(
        self,
        on_batch: OnBatch,
        *,
        cached: Callable[[], Deliveries | None] = lambda: None,
        num_backwards: Callable[[], int] = lambda: 0,
    ) -> None:
        self.library = ""
        """Library of the latest batch; empty before the first batch."""
        self.num_batches = self.num_samples = 0
        """Batches, and their samples, given to the training thread."""
        self.classes: set[type] = set()
        """Classes of the watched iterators."""
        self._on_batch, self._cached, self._num_backwards = on_batch, cached, num_backwards
        self._is_inside = threading.local()
        self._bytes: list[int] = []
        """Least and most bytes of a batch."""
        self._kept: Any = None
        self._kept_size = 0
        self._may_keep = True
        self._num_ahead, self._num_backwards_before = 0, 0

    @property
    def batches_vary(self) -> bool:
        """Whether batches differ in their bytes."""
        return bool(self._bytes) and self._bytes[1] > (1 + UNEVEN_BATCHES) * self._bytes[0]

    def attach(self, thread: int) -> None:
        """Wraps the iterators of all libraries imported by now; may be called again after further imports.

        Args:
            thread: Identifier of the training thread; batches taken by other threads are parts of a queue.
        """
        for library, module, name in CLASSES:
            cls = getattr(sys.modules.get(module), name, None)
            if isinstance(cls, type) and cls not in self.classes and hasattr(cls, "__next__"):
                self.classes.add(cls)
                wrap(cls, "__next__", self._counting(library, thread))

    def _counting(self, library: str, thread: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def next_batch(iterator: Any, *args: Any, **kwargs: Any) -> Any:
                # A node of torchdata asks further nodes, each by the same method.
                if threading.get_ident() != thread or getattr(self._is_inside, "is_set", False):
                    return original(iterator, *args, **kwargs)
                cached = self._cached()
                began = cached.begin_delivery() if cached is not None else perf_counter()
                if cached is not None and self._is_kept_of_use():
                    batch, size = clone_batch(self._kept), self._kept_size
                else:
                    self._is_inside.is_set = True
                    try:
                        batch = original(iterator, *args, **kwargs)
                    finally:
                        self._is_inside.is_set = False
                    size = samples_of(batch)
                    self._note(batch, size, is_cached=cached is not None)
                if size:
                    self.library = library
                    self.num_batches += 1
                    self.num_samples += size
                    if cached is not None:
                        cached.foreign_delivered(size, began)
                    else:
                        self._on_batch(size, perf_counter() - began)
                return batch

            return next_batch

        return make

    def _is_kept_of_use(self) -> bool:
        """Whether a kept batch trains: it does not if the script takes several without a backward pass."""
        num_backwards = self._num_backwards()
        if num_backwards != self._num_backwards_before:
            self._num_backwards_before, self._num_ahead = num_backwards, 0
        self._num_ahead += 1
        return self._kept is not None and self._num_ahead <= MAX_AHEAD

    def _note(self, batch: Any, size: int, *, is_cached: bool) -> None:
        """Keeps a first batch while batches are cached, and notes bytes as long as little is known."""
        if not is_cached:
            self._kept = None
        elif self._kept is None and size and self._may_keep:
            try:
                self._kept, self._kept_size = clone_batch(batch), size
            except Exception:  # an object of the library's own that cannot be copied
                self._may_keep = False
        if self.num_batches < NUM_NOTED:
            found = batch_bytes(batch)
            self._bytes = [min([found, *self._bytes[:1]]), max([found, *self._bytes[1:]])]


def samples_of(batch: Any) -> int:
    """Samples of a batch by the leading size of its tensors; DALI gives a list with a dict for each pipeline."""
    if isinstance(batch, list) and batch and all(isinstance(each, dict) for each in batch):
        return sum(leading_size(each) or 0 for each in batch)
    return leading_size(batch) or 0
