"""What the training loader gives the script during a trial: one cached batch while compute warms up, then real ones."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from torch.utils.data import IterableDataset

from autotune.trial.batches import EndlessBatchSampler, clone_batch, leading_size
from autotune.trial.gate import WorkerGates
from autotune.trial.loaders import LoaderRecord
from autotune.trial.meter import Meter
from autotune.trial.steps import Steps


class Feed:
    """Stands between the training loader and the script.

    Args:
        steps: Counts of backward passes and steps.
        start_meter: Makes the meter after the first optimizer step, for so many workers and batches ahead.
        num_passes_before_training: How often the script is known to begin an iteration over its loader before the
            one it trains in: a look at the first batch, or a run for statistics.
    """

    def __init__(
        self, steps: Steps, start_meter: Callable[[int, int], Meter], *, num_passes_before_training: int
    ) -> None:
        self.is_primed = False
        """Whether workers may have filled their queues before the clock started."""
        self.has_fed = False
        """Whether the training loader has given a batch."""
        self._steps = steps
        self._start_meter = start_meter
        self._num_passes_before_training = num_passes_before_training
        self._num_passes = 0
        self._meter: Meter | None = None
        self._gates = WorkerGates()
        self._token: Any = None
        self._token_samples = 0.0
        self._last_iterator: weakref.ref[Any] | None = None
        self._is_first_owed = False
        """Whether the cached batch took the place of this pass's first one, and nothing was taken since."""
        self._num_backwards = 0
        self._num_workers = self._num_queued = 0
        self._batch_size = 1
        self._on_next: list[Callable[[], None]] = []
        self._on_epoch_end: list[Callable[[], None]] = []

    def install(self) -> None:
        """Attaches to torch, beyond what the loaders' seam is attached to."""
        self._gates.install()

    def before_next(self, action: Callable[[], None]) -> None:
        """Runs an action before every batch."""
        self._on_next.append(action)

    def at_epoch_end(self, action: Callable[[], None]) -> None:
        """Runs an action when the training loader has no more batches."""
        self._on_epoch_end.append(action)

    def make_endless(self, loader: Any) -> None:
        """Lets the epoch of a built loader go on for the length of the trial.

        A stream ends when its dataset says so: an epoch of it cannot be repeated from outside.
        """
        sampler = getattr(loader, "batch_sampler", None)
        if hasattr(sampler, "__iter__") and not isinstance(loader.dataset, IterableDataset):
            # The loader refuses a new sampler by its setter; its length and the sampler it shows stay the same.
            vars(loader)["batch_sampler"] = EndlessBatchSampler(
                sampler, may_repeat=self._may_repeat, num_backwards=lambda: self._steps.num_backwards
            )

    def iterates(self, record: LoaderRecord, loader: Any) -> None:
        """Prepares the gate for the workers of an iteration that begins."""
        self._num_passes += 1
        if self._meter is not None:
            self._meter.pass_begins()
        self._gates.iteration_begins(
            loader,
            is_early=self._is_early,
            is_closed=self._holds_back,
            has_workers=loader.persistent_workers and record.is_iterated,
        )

    def iterated(self, _: LoaderRecord, loader: Any, iterator: Any) -> None:
        """Notes what belongs to an iteration that has begun."""
        self._gates.iteration_began(iterator, is_closed=self._holds_back)
        self._num_workers = loader.num_workers
        self._num_queued = loader.num_workers * (loader.prefetch_factor or 0)
        self._batch_size = loader.batch_size or 1
        self._last_iterator = None
        sampler = getattr(loader, "batch_sampler", None)
        iterator._autotune_sizes = sampler.latest_sizes if isinstance(sampler, EndlessBatchSampler) else None

    def next_batch(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        """The next batch of the training loader."""
        for action in self._on_next:
            action()
        meter = self._meter
        if meter is not None:
            meter.arrive()
            if not meter.uses_token:
                return self._metered(meter, iterator, original)
        elif self._steps.num_updates:
            self._meter = self._start_meter(self._num_workers, self._num_queued)
        return self._early(iterator, original)

    def open_gate(self) -> bool:
        """Lets the workers build: the window is near; whether nothing was built before but what is being built now."""
        gate = self._gates.gate
        is_empty = self._num_workers == 0 or (gate is not None and not self.is_primed)
        self.is_primed = not is_empty
        if gate is not None:
            gate.open()
        self._token = None
        return is_empty

    @property
    def _is_early(self) -> bool:
        """Whether the clock may not start yet."""
        return self._meter is None or self._meter.uses_token

    @property
    def _holds_back(self) -> bool:
        """Whether the script is given the cached batch, while the workers wait."""
        return self._num_passes > self._num_passes_before_training and self._is_early

    def _may_repeat(self, num_backwards_before: int) -> bool:
        """Whether a pass that came to its end goes on: while it trains, and not where it only reads."""
        num_backwards = self._steps.num_backwards
        return num_backwards > num_backwards_before or (num_backwards == 0 and self._holds_back)

    def _is_training(self, iterator: Any) -> bool:
        """Whether the batch before was trained on; a script that only reads its loader must get to its end."""
        if self._steps.num_backwards > self._num_backwards:
            return True
        return self._last_iterator is None or self._last_iterator() is not iterator

    def _early(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        """A batch before the clock may start: the cached one for training, real ones for everything else."""
        if self._token is not None and self._holds_back:
            if self._is_training(iterator):
                return self._cached(iterator)
            self._let_through(iterator, original)
        began = time.perf_counter()
        batch, num_samples = self._taken(iterator, original)
        self._note_early(iterator, num_samples, began)
        self._is_first_owed = False
        if self._token is None:
            self.has_fed = True
            self._token, self._token_samples = clone_batch(batch), num_samples
        return batch

    def _let_through(self, iterator: Any, original: Callable[[Any], Any]) -> None:
        """Opens the gate for a script that only reads, and makes up for a cached batch that began this pass."""
        if self._gates.gate is not None:
            self._gates.gate.open()
        if self._is_first_owed:
            self._is_first_owed = False
            self._taken(iterator, original)

    def _cached(self, iterator: Any) -> Any:
        began = time.perf_counter()
        gate = self._gates.gate
        if gate is not None and gate.is_open:
            # Some batches of this very pass were only read, so the workers are ahead by now.
            self.is_primed = True
        batch = clone_batch(self._token)
        self._is_first_owed = self._last_iterator is None
        self._note_early(iterator, self._token_samples, began)
        return batch

    def _note_early(self, iterator: Any, num_samples: float, began: float) -> None:
        self._last_iterator = weakref.ref(iterator)
        self._num_backwards = self._steps.num_backwards
        if self._meter is not None:
            self._meter.delivered(num_samples, time.perf_counter() - began)

    def _metered(self, meter: Meter, iterator: Any, original: Callable[[Any], Any]) -> Any:
        """A real batch while the loader counts: the path of every step of the window."""
        began = time.perf_counter()
        batch, num_samples = self._taken(iterator, original)
        meter.delivered(num_samples, time.perf_counter() - began)
        return batch

    def _taken(self, iterator: Any, original: Callable[[Any], Any]) -> tuple[Any, float]:
        """The loader's next batch, and its samples: as many as indices were asked for, or its leading size."""
        try:
            batch = original(iterator)
        except StopIteration:
            for action in self._on_epoch_end:
                action()
            if self._meter is not None:
                self._meter.epoch_ended()
            raise
        sizes: deque[int] | None = iterator._autotune_sizes
        return batch, sizes.popleft() if sizes else leading_size(batch) or self._batch_size
