"""What the training loader gives the script during a trial: one cached batch while compute warms up, then real ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from torch.utils.data import BatchSampler

from autotune.trial import torch_names
from autotune.trial.batches import EndlessBatchSampler, clone_batch, leading_size
from autotune.trial.gate import Gate
from autotune.trial.loaders import LoaderRecord
from autotune.trial.meter import Meter
from autotune.trial.steps import Steps


class Feed:
    """Stands between the training loader and the script.

    Args:
        steps: Counts of backward passes and steps.
        start_meter: Makes the meter at the first batch, for the loader as it was built.
    """

    def __init__(self, steps: Steps, start_meter: Callable[[Any, bool], Meter]) -> None:
        self.is_primed = False
        """Whether workers may have filled their queues before the clock started."""
        self.loader: Any = None
        """The training loader, once it has given a batch."""
        self._steps = steps
        self._start_meter = start_meter
        self._meter: Meter | None = None
        self._gates: dict[int, Gate] = {}
        self._token: Any = None
        self._token_samples = 0.0
        self._last_iterator: Any = None
        self._num_backwards = 0
        self._on_next: list[Callable[[], None]] = []
        self._on_epoch_end: list[Callable[[], None]] = []

    @property
    def has_gate(self) -> bool:
        """Whether the training loader's workers wait at a gate."""
        return self._gate_of(self.loader) is not None

    def before_next(self, action: Callable[[], None]) -> None:
        """Runs an action before every batch."""
        self._on_next.append(action)

    def at_epoch_end(self, action: Callable[[], None]) -> None:
        """Runs an action when the training loader has no more batches."""
        self._on_epoch_end.append(action)

    def gate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments of the training loader with a gate in its workers, where torch lets us."""
        if arguments.get("num_workers", 0) == 0 or not torch_names.fetchers():
            return arguments
        gate = Gate(arguments.get("multiprocessing_context"))
        gated = gate.worker_init(arguments.get("worker_init_fn"))
        self._gates[id(gated)] = gate
        return {**arguments, "worker_init_fn": gated}

    def make_endless(self, loader: Any) -> None:
        """Lets the epoch of a built loader go on for the length of the trial."""
        sampler = getattr(loader, "batch_sampler", None)
        if isinstance(sampler, BatchSampler) or hasattr(sampler, "__iter__"):
            # The loader refuses a new sampler by its setter; its length and the sampler it shows stay the same.
            vars(loader)["batch_sampler"] = EndlessBatchSampler(sampler, lambda: self._steps.num_steps > 0)

    def iterates(self, record: LoaderRecord) -> None:
        """Closes the gate for the workers of an iteration that begins before the clock may start."""
        gate = self._gate_of(record.loader)
        if gate is not None and (self._meter is None or self._meter.uses_token or self._meter.phase is None):
            gate.close()

    def next_batch(self, record: LoaderRecord, iterator: Any, original: Callable[[Any], Any]) -> Any:
        """The next batch of the training loader."""
        for action in self._on_next:
            action()
        meter = self._meter
        if meter is None:
            self.loader = record.loader
            meter = self._meter = self._start_meter(record.loader, self._gate_of(record.loader) is not None)
        meter.arrive()
        if self._token is not None and meter.uses_token:
            if self._is_training(iterator):
                return self._cached(meter, iterator)
            self._let_through(record)
        return self._real(meter, record, iterator, original)

    def open_gate(self) -> None:
        """Lets the workers build: the window is near."""
        gate = self._gate_of(self.loader)
        if gate is not None:
            gate.open()

    def _is_training(self, iterator: Any) -> bool:
        """Whether the batch before was trained on; a script that only reads its loader must get to its end."""
        return self._steps.num_backwards > self._num_backwards or iterator is not self._last_iterator

    def _let_through(self, record: LoaderRecord) -> None:
        gate = self._gate_of(record.loader)
        if gate is not None:
            gate.open()
            self.is_primed = record.loader.persistent_workers

    def _cached(self, meter: Meter, iterator: Any) -> Any:
        began = time.perf_counter()
        batch = clone_batch(self._token)
        self._delivered(meter, iterator, self._token_samples, began)
        return batch

    def _real(self, meter: Meter, record: LoaderRecord, iterator: Any, original: Callable[[Any], Any]) -> Any:
        began = time.perf_counter()
        try:
            batch = original(iterator)
        except StopIteration:
            for action in self._on_epoch_end:
                action()
            meter.epoch_ended()
            raise
        num_samples = _num_samples(record.loader, batch)
        self._delivered(meter, iterator, num_samples, began)
        if self._token is None:
            self._token, self._token_samples = clone_batch(batch), num_samples
        return batch

    def _delivered(self, meter: Meter, iterator: Any, num_samples: float, began: float) -> None:
        self._last_iterator = iterator
        self._num_backwards = self._steps.num_backwards
        meter.delivered(num_samples, time.perf_counter() - began)

    def _gate_of(self, loader: Any) -> Gate | None:
        return self._gates.get(id(getattr(loader, "worker_init_fn", None)))


def _num_samples(loader: Any, batch: Any) -> float:
    """Samples of a real batch: as many as indices were asked for; without indices, its leading size."""
    sampler = getattr(loader, "batch_sampler", None)
    if isinstance(sampler, EndlessBatchSampler) and sampler.sizes:
        return float(sampler.sizes.popleft())
    size = leading_size(batch)
    return float(size if size is not None else loader.batch_size or 1)
