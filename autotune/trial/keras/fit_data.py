"""The training data of a Keras script: kind, sizes, and the batches taken by a training function."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from time import perf_counter
from typing import Any

from autotune.model.keras_facts import DataKind
from autotune.settings.dataset_workers import is_py_dataset
from autotune.settings.fit_arrays import are_arrays, batch_size_in, is_in_batches, leaves, num_samples, samples_in

UNKNOWN_CARDINALITY = 0
"""Cardinalities below 0 mean unknown or infinite in tf.data."""


def kind_of(fit: Mapping[str, Any]) -> DataKind:
    """The kind of data in the arguments of `fit`."""
    data = fit.get("x")
    if hasattr(data, "element_spec"):
        return DataKind.TF_DATA
    if is_py_dataset(data):
        return DataKind.PY_DATASET
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(data, torch.utils.data.DataLoader):
        return DataKind.TORCH_LOADER
    if is_in_batches(data):
        return DataKind.GENERATOR
    return DataKind.ARRAYS if are_arrays(data) else DataKind.OTHER


def batches_in(fit: Mapping[str, Any]) -> int | None:
    """Batches of an epoch; None for data without a length."""
    if fit.get("steps_per_epoch"):
        return int(fit["steps_per_epoch"])
    total, size = samples_in(fit), batch_size_in(fit)
    data: Any = fit.get("x")
    if total is not None and size is not None:
        return math.ceil(total / size)
    with suppress(Exception):  # A script's own length may fail in any way.
        if hasattr(data, "cardinality"):
            count = int(data.cardinality())
            return count if count > UNKNOWN_CARDINALITY else None
        if hasattr(data, "num_batches"):
            return int(data.num_batches)
        return len(data)
    return None


class Taken:
    """Batches, samples and seconds of waiting of a call of the training function."""

    __slots__ = ("num_batches", "num_samples", "wait_s")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begins a call."""
        self.num_batches, self.num_samples, self.wait_s = 0, 0.0, 0.0


class BatchFeed:
    """Stands between a script's data and the training function: counts, and gives the cached batch again and again.

    Three ways of data lead into a training function: a Python iterator (JAX, and single batches on TensorFlow), an
    iterator of tf.data for the compiled step to read, and a list of batches (torch).
    """

    def __init__(self) -> None:
        self.taken = Taken()
        self.uses_cache: Callable[[], bool] = lambda: False
        """Whether the training gets the cached batch now."""
        self.cached: Any = None
        """A real batch; None before the first, and after `drop`."""
        self.batch_samples = 0
        """Samples of a whole batch, for batches that a compiled step reads by itself."""
        self.sizes: set[tuple[Any, ...]] = set()
        """Shapes of the batches seen in Python."""
        self.is_read_unseen = False
        """Whether a compiled step reads the batches out of Python's sight, as on TensorFlow in `fit`."""
        self.keeps_iterator = False
        """Whether the iterator stays for a diagnosis, with the buffers of an epoch that is over."""
        self.iterator: Any = None
        """The kept iterator of tf.data over real batches; None for all other data."""
        self.steps_per_call = 1
        self.epoch_batches: int | None = None
        """Batches of an epoch, if known: the last call of an epoch takes the rest."""
        self.epoch_samples: int | None = None
        self._batches_seen = 0
        self._samples_seen = 0.0
        self._is_repeatable = True
        self._again: Any = None
        """An iterator of tf.data over the cached batch; None before the first use."""
        self.keeps_sizes = False
        """Whether shapes are noted, for a probe."""

    def epoch_begins(self) -> None:
        """Begins the count of an epoch."""
        self._batches_seen, self._samples_seen = 0, 0.0

    @property
    def can_repeat(self) -> bool:
        """Whether the cached batch can take the place of all batches."""
        return self.cached is not None and self._is_repeatable

    def drop(self) -> None:
        """Releases the cached batch."""
        self.cached = self._again = None

    def given(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Arguments for the training function in place of the script's; begins the count of the call."""
        self.taken.begin()
        data = args[-1]
        if isinstance(data, list):
            self._note_list(data)
            return args
        if hasattr(data, "element_spec"):
            return (*args[:-1], self._of_tf_data(data))
        return (*args[:-1], Watched(data, self))

    def note(self, batch: Any, wait_s: float) -> None:
        """Counts a batch seen in Python, and keeps the first for the cache."""
        size = num_samples(batch)
        taken = self.taken
        taken.num_batches += 1
        taken.num_samples += size
        taken.wait_s += wait_s
        if self.cached is None and self.uses_cache():
            self.cached, self.batch_samples = batch, size
        if self.keeps_sizes:
            self.sizes.add(tuple(tuple(getattr(leaf, "shape", ())) for leaf in leaves(batch)))

    def note_cached(self) -> None:
        """Counts the cached batch."""
        self.taken.num_batches += 1
        self.taken.num_samples += self.batch_samples

    def _note_list(self, batches: list[Any]) -> None:
        wait_s, self.list_wait_s = self.list_wait_s, 0.0
        for batch in batches:
            self.note(batch, wait_s / len(batches))

    list_wait_s = 0.0
    """Seconds of the loop's wait for the next list of batches."""

    def _of_tf_data(self, iterator: Any) -> Any:
        self.is_read_unseen = True
        self.iterator = iterator if self.keeps_iterator else None
        left = self.epoch_batches - self._batches_seen if self.epoch_batches else self.steps_per_call
        self.taken.num_batches = max(1, min(self.steps_per_call, left))
        self._batches_seen += self.taken.num_batches
        if self.uses_cache():
            if self.cached is None:
                self.cached = next(iterator)
                self.batch_samples = num_samples(self.cached)
            if self._again is None:
                again = repeated(self.cached, iterator.element_spec)
                self._is_repeatable = again is not None
                self._again = iterator if again is None else again
            if self._is_repeatable:
                self.taken.num_batches = self.steps_per_call  # The one batch has no end.
            self.taken.num_samples = float(self.taken.num_batches * self.batch_samples)
            return self._again
        self.taken.num_samples = float(self.taken.num_batches * self.batch_samples)
        if self.epoch_samples:
            self.taken.num_samples = max(1.0, min(self.taken.num_samples, self.epoch_samples - self._samples_seen))
        self._samples_seen += self.taken.num_samples
        return iterator


class Watched:
    """An iterator over batches, counted and timed."""

    __slots__ = ("_feed", "_iterator")

    def __init__(self, iterator: Iterator[Any], feed: BatchFeed) -> None:
        self._iterator, self._feed = iterator, feed

    def __iter__(self) -> Watched:
        """This iterator."""
        return self

    def __next__(self) -> Any:
        """The cached batch or the next real batch."""
        feed = self._feed
        if feed.cached is not None and feed.uses_cache():
            feed.note_cached()
            return feed.cached
        began = perf_counter()
        batch = next(self._iterator)
        feed.note(batch, perf_counter() - began)
        return batch


def repeated(batch: Any, element_spec: Any) -> Any:
    """An endless iterator of tf.data over a batch, with the element specification of the real iterator.

    None without a way to the same specification: a compiled step would be traced anew.
    """
    tf = sys.modules["tensorflow"]

    def relaxed(value: Any, spec: Any) -> Any:
        if not isinstance(spec, tf.TensorSpec) or value.shape == spec.shape:
            return value
        return tf.compat.v1.placeholder_with_default(value, spec.shape)

    try:
        dataset = tf.data.Dataset.from_tensors(batch).repeat()
        dataset = dataset.map(lambda *values: _mapped(relaxed, values, element_spec))
        return iter(dataset) if dataset.element_spec == element_spec else None
    except (TypeError, ValueError):
        return None


def _mapped(relaxed: Callable[[Any, Any], Any], values: tuple[Any, ...], spec: Any) -> Any:
    nest = sys.modules["tensorflow"].nest
    value = values if isinstance(spec, tuple) and len(spec) == len(values) else values[0]
    return nest.map_structure(relaxed, value, spec)
