"""Gives the script the batches of the loaders beside the training loader, as with labelled and unlabelled data.

A script that takes a batch of each of several loaders for a step waits for all of them. While the compute-only rate is
measured, every loader gives a cached batch, and the workers of every loader wait at a gate; see `batch_source`.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from time import perf_counter
from typing import Any

from autotune.trial.loader.gate import WorkerGates
from autotune.trial.loader.loaders import LoaderRecord, NextBatch
from autotune.trial.meter.meter import Meter
from autotune.trial.step.steps import Steps
from autotune.trial.torch.batch_structure import clone_batch

MAX_AHEAD = 2
"""Batches that a training script takes before the first is used; some scripts take the next batch to see the end."""


class LoadersBeside:
    """Stands between the loaders beside the training loader and the script.

    Args:
        steps: Counts of backward passes.
        meter: Returns the meter; None before the first optimizer step.
    """

    def __init__(self, steps: Steps, meter: Callable[[], Meter | None]) -> None:
        self._steps, self._meter = steps, meter
        self._sources: dict[str, _Source] = {}

    def take(self, record: LoaderRecord) -> NextBatch:
        """The function that gives batches of a loader to the script."""
        return functools.partial(self._next_batch, self._of(record))

    def iterates(self, record: LoaderRecord, loader: Any) -> None:
        """Prepares the gate for the workers of a new iteration."""
        self._of(record).gates.iteration_begins(
            loader,
            is_early=self._is_early,
            is_closed=self._is_early,
            has_workers=loader.persistent_workers and record.is_iterated,
        )

    def iterated(self, record: LoaderRecord, loader: Any, iterator: Any) -> None:
        """Notes the loader on a new iterator, so that the iteration can go on under other settings."""
        iterator._autotune_loader = weakref.ref(loader) if loader.persistent_workers else lambda: loader
        source = self._of(record)
        source.gates.iteration_began(iterator, is_closed=self._is_early)
        source.num_ahead = source.num_owed = 0

    def open_gates(self) -> bool:
        """Lets all workers build; returns False when some built before, and may have filled a queue."""
        was_closed = True
        for source in self._sources.values():
            source.cached = None
            gate = source.gates.gate
            if gate is not None:
                was_closed &= not gate.is_open
                gate.open()
        return was_closed

    @property
    def _is_early(self) -> bool:
        """Whether the phase is before the first real batches."""
        meter = self._meter()
        return meter is None or meter.uses_cached_batch

    def _of(self, record: LoaderRecord) -> _Source:
        return self._sources.setdefault(record.key, _Source())

    def _next_batch(self, source: _Source, iterator: Any, original: Callable[[Any], Any]) -> Any:
        meter = self._meter()
        if meter is None or meter.uses_cached_batch:
            return self._early(source, iterator, original)
        began = perf_counter()
        batch = original(iterator)
        meter.counters.wait_s += perf_counter() - began
        return batch

    def _early(self, source: _Source, iterator: Any, original: Callable[[Any], Any]) -> Any:
        """A batch before the window: the cached batch for training, real batches for a script that only reads."""
        if self._steps.num_backwards != source.num_backwards:
            source.num_backwards = self._steps.num_backwards
            source.num_ahead = source.num_owed = 0
        source.num_ahead += 1
        if source.cached is not None and source.num_ahead <= MAX_AHEAD:
            source.num_owed += 1
            return clone_batch(source.cached)
        if source.gates.gate is not None and source.num_ahead > MAX_AHEAD:
            source.gates.gate.open()
        while source.num_owed:  # Each cached batch took the place of a real batch.
            source.num_owed -= 1
            original(iterator)
        batch = original(iterator)
        if source.cached is None:
            source.cached = clone_batch(batch)
        return batch


class _Source:
    """What is known of one loader beside the training loader."""

    __slots__ = ("cached", "gates", "num_ahead", "num_backwards", "num_owed")

    def __init__(self) -> None:
        self.gates = WorkerGates()
        self.cached: Any = None
        """The first batch, until the gate opens."""
        self.num_ahead = 0
        """Batches taken since the beginning of the iteration, or since the last backward pass."""
        self.num_owed = 0
        """Cached batches among these; each took the place of a real batch."""
        self.num_backwards = 0
