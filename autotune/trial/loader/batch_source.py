"""Gives the script its batches during a trial: a cached batch while compute warms up, then real batches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any

from autotune.measure.block import Phase
from autotune.trial.loader.copies_ahead import CopiesAhead
from autotune.trial.loader.gate import WorkerGates
from autotune.trial.loader.larger_batch import repeated
from autotune.trial.loader.loaders import LoaderRecord
from autotune.trial.loader.loaders_beside import LoadersBeside
from autotune.trial.loader.read_passes import ReadPasses
from autotune.trial.loader.running_epoch import RunningEpoch
from autotune.trial.meter.build_log import Built
from autotune.trial.meter.counters import Counters
from autotune.trial.meter.meter import Meter
from autotune.trial.step.steps import Steps
from autotune.trial.torch.batch_structure import SampleCount, clone_batch, lengthen

MAX_AHEAD = 2
"""Batches that a training script takes before the first is used; some scripts take the next batch to see the end."""


class BatchSource:
    """Stands between the training loader and the script.

    Args:
        steps: Counts of backward passes and steps.
        start_meter: Builds the meter after the first optimizer step, given the numbers of workers and queued batches.
        num_passes_before_training: Iterations over the loader before the training iteration, as counted in the probe,
            for instance to read the first batch or to compute statistics.
    """

    def __init__(
        self, steps: Steps, start_meter: Callable[[int, int], Meter], *, num_passes_before_training: int
    ) -> None:
        self.is_primed = False
        """Whether workers may have filled their queues before the clock started."""
        self.is_read_ahead = False
        """Whether a separate thread of the script reads the loader into a queue."""
        self.has_delivered = False
        """Whether the training loader has delivered a batch."""
        self.first_batch_s = 0.0
        """Seconds from the start of the first training iteration to the first batch, with the start of the workers."""
        self._pass_began = 0.0
        self.epoch, self._read_passes = RunningEpoch(), ReadPasses(steps)
        self._steps = steps
        self._start_meter = start_meter
        self._num_passes_before_training = num_passes_before_training
        self._num_passes = 0
        self._meter: Meter | None = None
        self._gates = WorkerGates()
        self.beside = LoadersBeside(steps, lambda: self._meter)
        """The loaders that train side by side with the training loader."""
        self._counters: Counters | None = None
        """The meter's counters while all batches are real, for the short path; else None."""
        self.copies: CopiesAhead | None = None
        """Copies of batches on a side stream; None where the script alone copies."""
        self._substitute: Any = None
        """A batch in place of all others; None for real batches."""
        self.batch_factor = 1
        """Samples of the cached batch as a multiple of a real batch's samples."""
        self.num_free_steps = 0
        """Steps before the first measured step; after a switch a script may hold a batch of the old size."""
        self._cached_batch: Any = None
        self._cached_samples = 0.0
        self._num_backwards = 0
        self._num_ahead = 0
        """Batches taken since the beginning of the pass, or since the last backward pass."""
        self._num_owed = 0
        """Cached batches among the batches ahead; each took the place of a real batch."""
        self._num_workers = self._num_queued = 0
        self._samples = SampleCount()
        self._on_next: list[Callable[[], None]] = []
        self._on_epoch_end: list[Callable[[], None]] = []
        self._on_first_batch: list[Callable[[Any], None]] = []
        self._on_early_batch: list[Callable[[Any], None]] = []

    def install(self) -> None:
        """Attaches the gates to torch; the seam of the loaders is attached elsewhere."""
        self._gates.install()

    def before_next(self, *actions: Callable[[], None]) -> None:
        """Runs actions before every batch."""
        self._on_next.extend(actions)

    def at_epoch_end(self, action: Callable[[], None]) -> None:
        """Runs an action at the end of the training loader's epoch."""
        self._on_epoch_end.append(action)

    def at_first_batch(self, action: Callable[[Any], None]) -> None:
        """Runs an action with the batch of the first step, before the script gets the batch."""
        self._on_first_batch.append(action)

    def at_early_batch(self, action: Callable[[Any], None]) -> None:
        """Runs an action with each real batch up to the warm-up's end, before the script gets the batch."""
        self._on_early_batch.append(action)

    def lengthen(self, loader: Any, least_batches: int) -> None:
        """Lengthens the epoch of a built loader, and `len(loader)`, to at least `least_batches` batches."""
        lengthen(
            loader,
            least_batches=least_batches,
            may_repeat=self._may_repeat,
            num_backwards=lambda: self._steps.num_backwards,
        )

    def iterates(self, record: LoaderRecord, loader: Any) -> None:
        """Prepares the gate for the workers of a new iteration."""
        self._pass_began = perf_counter()
        self._num_passes += 1
        if self._meter is not None:
            if self._meter.phase is not Phase.RESTART:  # in RESTART the meter begins the iteration, not the script
                self._read_passes.begins(self.epoch, self._meter.counters)
                self.epoch.left()
            self._meter.pass_begins()
        self.epoch.begins(loader)
        self._gates.iteration_begins(
            loader,
            is_early=self._is_early,
            is_closed=self._holds_back,
            has_workers=loader.persistent_workers and record.is_iterated,
        )

    def iterated(self, record: LoaderRecord, loader: Any, iterator: Any) -> None:
        """Notes the workers, queue length and batch size of a new iteration."""
        self._gates.iteration_began(iterator, is_closed=self._holds_back)
        self._num_workers = loader.num_workers
        self._num_queued = loader.num_workers * (loader.prefetch_factor or 0)
        self._samples.batch_size = loader.batch_size
        self._num_ahead = self._num_owed = 0
        self.epoch.began(loader, iterator, is_held_back=self._holds_back, is_rebuilt=record.is_rebuilt)
        if self._meter is not None:
            self.phase_began(self._meter.phase)

    def phase_began(self, phase: Phase) -> None:
        """Takes the short path while all batches are real."""
        is_real = phase in (Phase.RAMP, Phase.WINDOW)
        if self.copies is not None:
            self.copies.looks_ahead = phase not in (Phase.WARMUP, Phase.COMPUTE)
        is_plain = is_real and not self._on_next and self._read_passes.waiting is None
        self._counters = self._meter.counters if is_plain and self._meter is not None else None

    def next_batch(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        """The next batch for the script; runs in every step of the window, hence short and in one function."""
        counters = self._counters
        if counters is not None:
            counters.arrive()
            counters = self._counters  # the step may have ended the phase
        if counters is None or self.epoch.num_given >= self.epoch.num_until_end:
            return self._next_of_any(iterator, original)
        began = perf_counter()
        try:
            batch = original(iterator)
        except StopIteration:
            self._epoch_ends()
            raise
        except Exception:
            self._batch_failed(iterator)
            raise
        counters.wait_s += perf_counter() - began
        sizes = iterator._autotune_sizes
        counters.latest_num_samples = num_samples = sizes.popleft() if sizes else self._samples.of(batch)
        counters.samples_taken += num_samples
        counters.num_taken += 1
        self.epoch.num_given += 1
        return batch

    def give(self, batch: Any) -> None:
        """Gives the script this batch from now on, at the end of a diagnosis; None returns to real batches."""
        self._substitute = batch

    @property
    def substitute_s(self) -> float:
        """Seconds lost to handing out the cached batch and substitutes, once the device has finished."""
        return self._meter.idle_s() if self._meter is not None else 0.0

    def further_batch(self) -> Any:
        """A batch of the running iteration, for another use than the script's training.

        Raises:
            StopIteration: The iteration is at its end, or the script has dropped it.
        """
        return self._taken(*self.epoch.source)[0]

    def open_gate(self) -> bool:
        """Lets the workers build, before the window; returns True when no queue was filled before."""
        gate = self._gates.gate
        self.is_read_ahead = self._steps.thread != threading.get_ident()
        has_queue = self._num_workers > 0 or self.is_read_ahead
        is_ahead = not self.beside.open_gates() or self.is_read_ahead
        self.is_primed = has_queue and (self.is_primed or gate is None or is_ahead)
        if gate is not None:
            gate.open()
        self._cached_batch = None
        return not self.is_primed

    def built(self) -> Built | None:
        """What the workers of the running iteration have built; None without a gate.

        None also with further loaders: the script may wait for a further loader's workers, while the training loader's
        workers fill their queue, and their batches would count as trained.
        """
        gate = self._gates.gate if not self.beside.has_any else None
        return gate.log.built() if gate is not None else None

    def end_epoch(self, num_needed: int) -> float | None:
        """Ends the running epoch; returns the seconds of the end itself, None when the epoch cannot be ended here.

        Args:
            num_needed: Batches of the next epoch to give to the script within the script's current loop.
        """
        return None if self.is_read_ahead else self.epoch.end(num_needed)

    @property
    def _is_early(self) -> bool:
        """Whether the phase is before the first real batches."""
        return self._meter is None or self._meter.uses_cached_batch

    @property
    def _holds_back(self) -> bool:
        """Whether the workers wait while the script gets the cached batch."""
        return self._num_passes > self._num_passes_before_training and self._is_early

    def _may_repeat(self, num_backwards_before: int) -> bool:
        """Whether a pass goes on at the end of the script's own epoch: True for training, False for reading only.

        Workers ask for batches long before the script gets the first batch, so an end before the third batch counts as
        training.
        """
        is_read_ahead = self._steps.thread not in (0, threading.get_ident())
        has_trained = self._steps.num_backwards > num_backwards_before
        return has_trained or is_read_ahead or self.epoch.num_taken <= MAX_AHEAD

    def _next_of_any(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        """The next batch of any kind: cached, real or substitute."""
        for action in self._on_next:
            action()
        meter = self._meter
        if meter is not None and self._read_passes.waiting is not None:
            self.epoch = self._read_passes.taken_from(iterator, self.epoch, meter.counters)
            self.phase_began(meter.phase)
        epoch = self.epoch
        try:
            if epoch.is_at_end():
                raise StopIteration
            if meter is None or meter.uses_cached_batch:
                return self._early(iterator, original)
            meter.arrive()
            if self._substitute is not None:
                return self._give()
            began = perf_counter()
            batch, num_samples = self._taken(iterator if epoch.successor is None else epoch.successor, original)
            meter.counters.delivered(num_samples, perf_counter() - began)
            epoch.num_given += 1
            return batch
        except StopIteration:
            self._epoch_ends()
            raise

    def _early(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        """A batch before the window: the cached batch for training, real batches for all other uses."""
        if self._meter is not None:
            self._meter.arrive()
        elif self._steps.num_updates > self.num_free_steps:
            self._meter = self._start_meter(self._num_workers, self._num_queued)
        if self._steps.num_backwards != self._num_backwards:
            self._num_backwards = self._steps.num_backwards
            self._num_ahead = self._num_owed = 0
        self.epoch.taken_by(original)
        meter = self._meter
        began = meter.begin_delivery() if meter is not None else None
        if self._cached_batch is not None and self._holds_back and self._num_ahead < MAX_AHEAD:
            batch, num_samples, is_real = self._cached(), self._cached_samples, False
        else:
            if self._num_owed:
                self._let_through(iterator, original)
            batch, num_samples = self._taken(iterator, original)
            is_real = True
        self._num_ahead += 1
        self.epoch.num_given += 1
        if self._cached_batch is None and self._is_early:
            self.has_delivered = True
            self.first_batch_s = perf_counter() - self._pass_began
            self._cached_batch = clone_batch(repeated(batch, self.batch_factor))
            self._cached_samples = num_samples * self.batch_factor
            for action in self._on_first_batch:
                action(batch)
        if is_real:
            for note in self._on_early_batch:
                note(batch)
        if meter is not None:
            meter.delivered(num_samples, began)
        return batch

    def _give(self) -> Any:
        assert self._meter is not None
        began = self._meter.begin_delivery()
        batch = clone_batch(self._substitute)
        self._meter.delivered(self._samples.of(batch), began)
        return batch

    def _cached(self) -> Any:
        gate = self._gates.gate
        if gate is not None and gate.is_open:
            # The script only read some batches of this pass, so the workers are ahead by now.
            self.is_primed = True
        self._num_owed += 1
        if self.copies is not None:
            return self.copies.of_cached(lambda: clone_batch(self._cached_batch))
        return clone_batch(self._cached_batch)

    def _let_through(self, iterator: Any, original: Callable[[Any], Any]) -> None:
        """Opens the gate for a script that only reads, and skips one real batch per cached batch given before."""
        if self._gates.gate is not None:
            self._gates.gate.open()
        while self._num_owed:
            self._num_owed -= 1
            self._taken(iterator, original)

    def _taken(self, iterator: Any, original: Callable[[Any], Any]) -> tuple[Any, float]:
        """The loader's next batch, and its samples: the number of requested indices, or the leading size."""
        sizes = iterator._autotune_sizes
        try:
            batch = original(iterator)
        except StopIteration:
            raise
        except Exception:
            self._batch_failed(iterator)
            raise
        return batch, sizes.popleft() if sizes else self._samples.of(batch)

    def _batch_failed(self, iterator: Any) -> None:
        """Opens the gate after a failed batch: the script may ask for the next batch, from a worker at the gate."""
        if self._gates.gate is not None:
            self._gates.gate.open()
        if iterator._autotune_sizes:
            iterator._autotune_sizes.popleft()

    def _epoch_ends(self) -> None:
        for action in self._on_epoch_end:
            action()
        if self._meter is not None:
            self._read_passes.end(self._meter.counters)
            self._meter.epoch_ended()
