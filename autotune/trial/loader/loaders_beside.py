"""Gives the script the batches of the loaders beside the training loader, as with labelled and unlabelled data.

A script that takes a batch of each of several loaders for a step waits for all of them. While the compute-only rate is
measured, every loader gives a cached batch, and the workers of every loader wait at a gate; see `batch_source`.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable
from time import perf_counter
from typing import Any

from autotune.trial.loader.endless_samplers import is_endless
from autotune.trial.loader.gate import WorkerGates
from autotune.trial.loader.loaders import LoaderRecord, NextBatch
from autotune.trial.meter.meter import Meter
from autotune.trial.step.steps import Steps
from autotune.trial.torch.batch_structure import clone_batch, shown_length

MOST_TAKEN = 8
"""Most batches of a loader for one backward pass of a script that trains; a script that takes more only reads."""


class LoadersBeside:
    """Stands between the loaders beside the training loader and the script.

    Args:
        steps: Counts of backward passes.
        meter: Returns the meter; None before the first optimizer step.
    """

    def __init__(self, steps: Steps, meter: Callable[[], Meter | None]) -> None:
        self._steps, self._meter = steps, meter
        self._sources: dict[str, _Source] = {}

    @property
    def has_any(self) -> bool:
        """Whether the script has begun to iterate over a loader beside the training loader."""
        return bool(self._sources)

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
        """Notes a new iteration and the length that the loader promises."""
        iterator._autotune_loader = weakref.ref(loader) if loader.persistent_workers else lambda: loader
        source = self._of(record)
        source.gates.iteration_began(iterator, is_closed=self._is_early)
        source.iterator = weakref.ref(iterator)
        source.num_ahead = source.num_owed = 0
        if source.is_begun_anew:
            source.is_begun_anew = False
            return
        source.num_given = 0
        source.num_until_end = self._promised_length(loader) if self._is_early else math.inf

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

    def begin_next(self, end_iteration: Callable[[Any], None], num_needed: int) -> None:
        """Ends the iterations of loaders that start workers for every epoch, where an epoch begins from outside.

        Args:
            end_iteration: Ends the workers of an iteration; a new iteration gives the next batch.
            num_needed: Batches that the script will take for more of its running iteration.
        """
        for source in self._sources.values():
            iterator = source.iterator()
            loader = iterator._autotune_loader() if iterator is not None else None
            if loader is None or not loader.num_workers or loader.persistent_workers:
                continue
            promised = self._promised_length(loader)
            if source.num_given + num_needed <= promised < math.inf:
                source.is_begun_anew, source.num_until_end = True, promised
                end_iteration(iterator)

    @property
    def _is_early(self) -> bool:
        """Whether the phase is before the first real batches."""
        meter = self._meter()
        return meter is None or meter.uses_cached_batch

    def _of(self, record: LoaderRecord) -> _Source:
        return self._sources.setdefault(record.key, _Source())

    @staticmethod
    def _promised_length(loader: Any) -> float:
        """Batches of an iteration as the loader tells the script; infinite without a length, or without an end."""
        sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
        return math.inf if is_endless(sampler) else shown_length(loader) or math.inf

    def _next_batch(self, source: _Source, iterator: Any, original: Callable[[Any], Any]) -> Any:
        meter = self._meter()
        if source.num_given >= source.num_until_end:
            raise StopIteration  # Cached batches came on top of the loader's own.
        if meter is None or meter.uses_cached_batch:
            began = meter.begin_delivery() if meter is not None else None
            batch = self._early(source, iterator, original)
            if meter is not None:
                meter.handed_out(began)
        else:
            began = perf_counter()
            batch = original(iterator)
            meter.counters.wait_s += perf_counter() - began
        source.num_given += 1
        return batch

    def _early(self, source: _Source, iterator: Any, original: Callable[[Any], Any]) -> Any:
        """A batch before the window: the cached batch for training, real batches for a script that only reads."""
        if self._steps.num_backwards != source.num_backwards:
            source.num_backwards = self._steps.num_backwards
            source.num_ahead = source.num_owed = 0
        source.num_ahead += 1
        if source.cached is not None and source.num_ahead <= MOST_TAKEN:
            source.num_owed += 1
            return clone_batch(source.cached)
        if source.num_ahead > MOST_TAKEN:
            source.open_gate()
        while source.num_owed:  # Each cached batch took the place of a real batch.
            source.num_owed -= 1
            source.taken(iterator, original)
        batch = source.taken(iterator, original)
        if source.cached is None:
            source.cached = clone_batch(batch)
        return batch


class _Source:
    """What is known of one loader beside the training loader."""

    __slots__ = (
        "cached",
        "gates",
        "is_begun_anew",
        "iterator",
        "num_ahead",
        "num_backwards",
        "num_given",
        "num_owed",
        "num_until_end",
    )

    def __init__(self) -> None:
        self.gates = WorkerGates()
        self.iterator: Callable[[], Any] = lambda: None
        """Weak reference to the running iterator."""
        self.cached: Any = None
        """The first batch, until the gate opens."""
        self.num_given = 0
        """Batches given to the script in the running iteration."""
        self.is_begun_anew = False
        """Whether the next iteration is a part of the script's running one."""
        self.num_until_end = math.inf
        """Batches until the iteration is ended from outside; infinite when the loader's own end comes no later."""
        self.num_ahead = 0
        """Batches taken since the beginning of the iteration, or since the last backward pass."""
        self.num_owed = 0
        """Cached batches among these; each took the place of a real batch."""
        self.num_backwards = 0

    def open_gate(self) -> None:
        """Lets the workers build."""
        if self.gates.gate is not None:
            self.gates.gate.open()

    def taken(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        """The loader's next batch; after a failed batch the gate opens, since the script may ask for the next."""
        try:
            return original(iterator)
        except StopIteration:
            raise
        except Exception:
            self.open_gate()
            raise
