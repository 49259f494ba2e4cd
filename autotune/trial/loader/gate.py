"""Holds a loader's workers back at a gate: workers start and import during the warm-up, and build batches later.

A full queue at the start of the clock makes settings with many workers look up to nine times too fast, and draining a
full queue costs a thousand steps (measured). Hence the queue is never filled before the clock starts.
"""

from __future__ import annotations

import multiprocessing
import weakref
from collections.abc import Callable
from typing import Any

from torch.utils.data import IterableDataset

from autotune.trial.meter.build_log import BuildLog
from autotune.trial.torch import torch_names
from autotune.trial.torch.patching import wrap


class Gate:
    """The gate at which the workers of an iteration wait before they build, and the log of the batches built after.

    A message in a pipe opens the gate. Each worker waits for the message, and leaves the message in the pipe. The
    training process alone opens and closes the gate, and never waits for a worker: `multiprocessing.Event.set` waits
    for ever for a worker that was killed at its wait.
    """

    def __init__(self, context: Any, num_workers: int, prefetch_factor: int) -> None:
        methods = context or multiprocessing
        self.log = BuildLog(context, num_workers, prefetch_factor)
        self._flag = methods.RawValue("b", 0)
        self._message, self._opener = methods.Pipe(duplex=False)

    @property
    def is_open(self) -> bool:
        """Whether the workers may build."""
        return bool(self._flag.value)

    def open(self) -> None:
        """Lets the workers build; returns at once."""
        if not self.is_open:
            self._flag.value = 1
            self._opener.send_bytes(b"")

    def close(self) -> None:
        """Makes the workers wait again before their next batch."""
        if self.is_open:
            self._flag.value = 0
            self._message.recv_bytes()

    def wait(self) -> None:
        """Returns once the gate is open; for workers."""
        while not self.is_open:
            self._message.poll(None)


class GatedWorkerInit:
    """A `worker_init_fn` that makes a worker wait at the gate, then runs the script's own function; can be pickled.

    Args:
        gate: The gate, with the log of batches.
        user_init: The script's own `worker_init_fn`.
        is_sharded: Whether each worker has a separate share of the data; the first worker may then have none.
    """

    def __init__(self, gate: Gate, user_init: Callable[[int], None] | None, *, is_sharded: bool) -> None:
        self.gate = gate
        self.user_init = user_init
        self.is_sharded = is_sharded

    def __call__(self, worker_id: int) -> None:
        """Wraps the fetchers of this process, then runs the script's own function."""
        passage = _Passage(self.gate, worker_id, num_free=1 if worker_id == 0 or self.is_sharded else 0)
        for cls in torch_names.fetchers():
            wrap(cls, "fetch", passage.through)
        if self.user_init is not None:
            self.user_init(worker_id)


class _Passage:
    """The way of a worker's batches through the gate."""

    def __init__(self, gate: Gate, worker_id: int, *, num_free: int) -> None:
        self._gate, self._worker_id = gate, worker_id
        self._num_free_of_each = num_free
        """Batches of an iteration that may pass the closed gate: the batch for the compute warm-up."""
        self._num_free = num_free
        """Free batches left to the running iteration."""
        self._fetcher: Callable[[], Any] = lambda: None
        """A weak reference to the fetcher of the running iteration: persistent workers make one for each iteration."""
        self._is_building = False

    def through(self, fetch: Callable[..., Any]) -> Callable[..., Any]:
        """A `fetch` that waits at the gate and logs each batch."""
        gate, log = self._gate, self._gate.log

        def gated(fetcher: Any, index: Any) -> Any:
            if self._is_building:
                return fetch(fetcher, index)  # a dataset that reads an inner loader
            self._is_building = True
            try:
                if self._fetcher() is not fetcher:
                    self._fetcher, self._num_free = weakref.ref(fetcher), self._num_free_of_each
                if self._num_free > 0:
                    self._num_free -= 1
                    return fetch(fetcher, index)
                gate.wait()
                return log.build(self._worker_id, fetch, fetcher, index)
            finally:
                self._is_building = False

        return gated


class WorkerGates:
    """The gate of the training loader's running iteration.

    Every iteration has a new gate. The script may leave an iteration early, for instance after reading the first batch.
    The workers of such an iteration must end without opening the gate of the next.
    """

    def __init__(self) -> None:
        self.gate: Gate | None = None
        """None when the running iteration has no workers, or workers without a gate."""
        self._has_lasting_workers = False

    def install(self) -> None:
        """Attaches to the shutdown of workers, since a worker at a closed gate would never see the request to end."""
        if torch_names.WORKERS_ITERATOR is not None:
            wrap(torch_names.WORKERS_ITERATOR, torch_names.SHUTDOWN_WORKERS, _opening)

    def iteration_begins(self, loader: Any, *, is_early: bool, is_closed: bool, has_workers: bool) -> None:
        """Prepares a loader before the start of its workers.

        Args:
            loader: The training loader.
            is_early: Whether the phase is before the first real batches.
            is_closed: Whether workers wait at the gate from the beginning.
            has_workers: Whether the loader goes on with existing persistent workers.
        """
        self._has_lasting_workers = has_workers and loader.num_workers > 0
        if self.gate is not None:
            # Persistent workers finish earlier requests; the queue of other workers is read no more.
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
        """Notes the gate on the new iterator; closes the gate again for persistent workers."""
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
