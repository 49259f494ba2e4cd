"""Workers start and import while compute warms up, but build nothing until the clock may start.

A queue that was full before the clock started makes the settings with the most workers look up to nine times too fast,
and discarding batches until it has drained costs a thousand steps (measured); so it is never filled.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

from torch.utils.data import IterableDataset

from autotune.trial.meter.build_log import BuildLog
from autotune.trial.torch import torch_names
from autotune.trial.torch.patching import wrap


class Gate:
    """An event that the workers of one iteration wait for before they build a batch, and what they built after it."""

    def __init__(self, context: Any, num_workers: int, prefetch_factor: int) -> None:
        self.is_open = False
        self.log = BuildLog(context, num_workers, prefetch_factor)
        self.event: Any = (context or multiprocessing).Event()

    def open(self) -> None:
        """Lets the workers build."""
        self.is_open = True
        self.event.set()

    def close(self) -> None:
        """Makes the workers wait again before their next batch."""
        self.is_open = False
        self.event.clear()


class GatedWorkerInit:
    """A `worker_init_fn` that closes the gate in its worker, then runs the user's own; can be pickled.

    Args:
        gate: What to wait at, and to note batches in.
        user_init: The script's own `worker_init_fn`.
        is_sharded: Whether each worker has a share of the data of its own, so that the first may have none.
    """

    def __init__(self, gate: Gate, user_init: Callable[[int], None] | None, *, is_sharded: bool) -> None:
        self.gate = gate
        self.user_init = user_init
        self.is_sharded = is_sharded

    def __call__(self, worker_id: int) -> None:
        """Wraps the fetchers of this process, then initialises as the user asked."""
        passage = _Passage(self.gate, worker_id, num_free=1 if worker_id == 0 or self.is_sharded else 0)
        for cls in torch_names.fetchers():
            wrap(cls, "fetch", passage.through)
        if self.user_init is not None:
            self.user_init(worker_id)


class _Passage:
    """The way of a worker's batches through the gate."""

    def __init__(self, gate: Gate, worker_id: int, *, num_free: int) -> None:
        self._gate, self._worker_id = gate, worker_id
        self._num_free = num_free
        """Batches that need not wait: the one that warms the compute up."""
        self._is_building = False

    def through(self, fetch: Callable[..., Any]) -> Callable[..., Any]:
        """A `fetch` that waits at the gate and is noted."""
        event, log = self._gate.event, self._gate.log

        def gated(fetcher: Any, index: Any) -> Any:
            if self._is_building:
                return fetch(fetcher, index)  # a dataset that reads a loader of its own
            self._is_building = True
            try:
                if self._num_free > 0:
                    self._num_free -= 1
                    return fetch(fetcher, index)
                if not event.is_set():
                    event.wait()
                return log.build(self._worker_id, fetch, fetcher, index)
            finally:
                self._is_building = False

        return gated


class WorkerGates:
    """The gate of the training loader's running iteration.

    Every iteration has a gate of its own: workers of one that the script has left, after a look at its first batch for
    instance, must neither be waited for nor let those of the next one through.
    """

    def __init__(self) -> None:
        self.gate: Gate | None = None
        """None where the workers of the running iteration may build as they like, or there are none."""
        self._has_lasting_workers = False

    def install(self) -> None:
        """Attaches to the end of workers: those that wait at a gate cannot be told otherwise that they are to end."""
        if torch_names.WORKERS_ITERATOR is not None:
            wrap(torch_names.WORKERS_ITERATOR, torch_names.SHUTDOWN_WORKERS, _opening)

    def iteration_begins(self, loader: Any, *, is_early: bool, is_closed: bool, has_workers: bool) -> None:
        """Prepares a loader for the workers that it is about to start.

        Args:
            loader: The training loader.
            is_early: Whether the clock may not start yet.
            is_closed: Whether its workers are to wait from the beginning.
            has_workers: Whether it goes on with the persistent workers that it has.
        """
        self._has_lasting_workers = has_workers and loader.num_workers > 0
        if self.gate is not None:
            # Workers that go on finish what they were asked for before; others fill a queue that nobody reads.
            self.gate.open()
        if self._has_lasting_workers:
            return
        self.gate = None
        current = loader.worker_init_fn
        user_init = loader.worker_init_fn = current.user_init if isinstance(current, GatedWorkerInit) else current
        if is_early and loader.num_workers > 0 and torch_names.fetchers() and torch_names.WORKERS_ITERATOR is not None:
            self.gate = Gate(loader.multiprocessing_context, loader.num_workers, loader.prefetch_factor)
            is_sharded = isinstance(loader.dataset, IterableDataset)
            loader.worker_init_fn = GatedWorkerInit(self.gate, user_init, is_sharded=is_sharded)
            if not is_closed:
                self.gate.open()

    def iteration_began(self, iterator: Any, *, is_closed: bool) -> None:
        """Notes the iterator whose workers wait here; closes the gate again for persistent ones."""
        iterator._autotune_gate = self.gate
        if self.gate is not None and is_closed and self._has_lasting_workers:
            self.gate.close()


def _opening(original: Callable[..., Any]) -> Callable[..., Any]:
    def shutdown_workers(iterator: Any) -> Any:
        gate = getattr(iterator, "_autotune_gate", None)
        if gate is not None:
            gate.open()
        return original(iterator)

    return shutdown_workers
