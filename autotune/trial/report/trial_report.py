"""Puts the report of a trial's rank together from all observers, and writes the report."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Thread
from typing import TYPE_CHECKING, Any

import torch

from autotune.measure.block import Block, Phase
from autotune.model.result import RankResult, RankStatus
from autotune.protocol.paths import TrialPaths
from autotune.trial.apply.applied import AppliedSettings
from autotune.trial.loader.batch_source import BatchSource
from autotune.trial.loader.longest_batch import LongestBatch
from autotune.trial.meter.durations import PartTimes
from autotune.trial.meter.host_memory import PassingWatch, held_bytes
from autotune.trial.meter.meter import Meter
from autotune.trial.observed_values import Observed
from autotune.trial.report import rank_report
from autotune.trial.report.failure import describe
from autotune.trial.step.losses import LossWatch
from autotune.trial.step.steps import parameters_of
from autotune.trial.torch.allocator import AllocatorWatch

if TYPE_CHECKING:
    from autotune.trial.observing.observer import Observer

NUM_WATCHED_PARAMETERS = 4
"""Number of the smallest parameters, and of the smallest matrices, to compare after the first step and at the end.

Training must change at least one. Matrices have values near zero that move under any learning rate. The smallest
parameters of some language models are the factors of norms; in half precision factors near 1 may not move."""
MAX_WATCHED_VALUES = 4096
"""Values of each watched parameter, spread over its rows; a copy of the whole would raise the peak of memory."""


class TrialReport:
    """Collects and writes the report of this rank.

    Args:
        paths: The trial's files.
        times: Times of the trial's parts so far.
        applied: The settings in force.
        batch_source: The source of the script's batches.
        losses: The watch on the losses.
        allocator: The watch on the device's memory.
        has_loader: Whether the script trains from a loader.
    """

    def __init__(
        self,
        paths: TrialPaths,
        times: PartTimes,
        applied: AppliedSettings,
        batch_source: BatchSource,
        losses: LossWatch,
        allocator: AllocatorWatch,
        *,
        has_loader: bool,
    ) -> None:
        self.meter: Meter | None = None
        self.observer: Observer | None = None
        self.set_by_script = Observed()
        """Settings that the script put in force itself, by field; these override observed values."""
        self.has_unseen_queue = False
        """Whether a script without a loader may read ahead into its own queue."""
        self.world_size = 1
        self._rank = 0
        self._paths, self._times, self._applied, self._batch_source = paths, times, applied, batch_source
        self._steps, self._losses, self._allocator = applied.steps, losses, allocator
        self._has_loader = has_loader
        self._watched: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._allocated: dict[str, Any] | None = None
        """The allocator's figures at the end of the window; None unless an observation follows."""
        self._host_memory: dict[str, Any] | None = None
        """Host memory at the end of the window; None until read."""
        self.longest_batch: LongestBatch | None = None
        """The steps on the longest batch; None where batches are of one size, and outside of finals."""
        self._held_before: list[int | None] = []
        """Host memory at the beginning of the window, once read."""
        self._growth: int | None = None
        """Growth of the held host memory from there to the first reading after the window."""
        self._passing: PassingWatch | None = None
        """Watch on the peak of host memory since training began; None before."""
        self._is_written = False

    @property
    def is_due(self) -> bool:
        """Whether a report is still to be written; False in a launcher, worker or helper that never trains."""
        return not self._is_written and (self._has_trained or rank_report.is_main_process())

    def note_rank(self) -> tuple[int, int]:
        """Notes and returns rank and world size while the process group exists."""
        self._rank, self.world_size = rank_report.identity()
        return self._rank, self.world_size

    def training_begins(self) -> None:
        """Begins to watch the peak of host memory."""
        self._passing = self._passing or PassingWatch()

    def forget_peaks(self) -> None:
        """Begins the peak of the host's memory anew, for a first step that does not count."""
        self._passing = PassingWatch()

    def growth_begins(self) -> None:
        """Reads the held host memory at the beginning of the window, beside the training."""
        Thread(target=lambda: self._held_before.append(held_bytes()), daemon=True).start()

    def note_held_memory(self) -> None:
        """Reads the held host memory while the loader's queues are full."""
        self._host_memory = self._read_host_memory()

    def longest_begins(self) -> None:
        """Reads the growth of host memory; the memory itself is read after the steps on the longest batch."""
        if self._host_memory is None:
            self._read_host_memory()
        self._host_memory = None

    def note_memory(self) -> None:
        """Reads the allocator, and the host memory if not read yet, before an observation takes memory."""
        self._host_memory = self._host_memory or self._read_host_memory()
        self._allocated = self._allocator.figures()

    def watch_parameters(self, optimizer: torch.optim.Optimizer) -> None:
        """Copies parts of some parameters after the first step, for the comparison at the end."""
        if self._watched:
            return
        moving = [p for p in parameters_of(optimizer) if p.grad is not None and _part(p).numel()]
        smallest = sorted(moving, key=lambda p: p.numel())
        matrices = [p for p in smallest if p.dim() > 1]
        chosen = {id(p): p for p in (*smallest[:NUM_WATCHED_PARAMETERS], *matrices[:NUM_WATCHED_PARAMETERS])}
        self._watched = [(p, _part(p).clone()) for p in chosen.values()]

    def write_error(self, error: BaseException) -> None:
        """Writes the report of a script that ended with an exception."""
        self._is_written = True
        # The meter's start noted the rank while the process group still existed.
        rank, world_size = rank_report.identity() if self.meter is None else (self._rank, self.world_size)
        result = RankResult(
            rank=rank,
            world_size=world_size,
            status=RankStatus.RAISED,
            error=describe(error),
            durations_s=self._durations(),
            **self._allocator.figures(),
            is_past_its_epoch=self._batch_source.epoch.is_past_end,
        )
        rank_report.write(self._paths, result, is_bystander=not self._has_trained)

    def write(self, status: RankStatus, *, is_converged: bool = False, is_final: bool = True) -> None:
        """Writes the measurement so far; waits for the device.

        Args:
            status: The stage that this rank has reached.
            is_converged: Whether the window's interval is narrow enough.
            is_final: True for the last report; after False a later report may replace this report.
        """
        self._is_written = is_final
        meter = self.meter
        if meter is None:
            self.note_rank()
        blocks = meter.blocks() if meter is not None else ()
        is_counted = self._batch_source.is_read_ahead or self._applied.has_argument_batch
        observed = self._applied.counted() if is_counted else _accumulation(blocks)
        observed.update(self._applied.observed())
        observed.update(self.set_by_script)
        result = RankResult(
            rank=self._rank,
            world_size=self.world_size,
            status=status,
            blocks=blocks,
            is_converged=is_converged,
            is_primed=self._batch_source.is_primed or self.has_unseen_queue,
            compute_samples_per_second=meter.compute_samples_per_second if meter is not None else None,
            observed=observed.values,
            observed_comments=observed.comments,
            **(self._host_memory or self._read_host_memory()),
            **(self._allocated or self._allocator.figures()),
            longest_batch_factor=self.longest_batch.factor if self.longest_batch is not None else None,
            num_further_batches=self.longest_batch.num_read if self.longest_batch is not None else 0,
            epoch_micro_batches=self._batch_source.epoch.num_batches if self._has_loader else None,
            num_epoch_ends=meter.num_epoch_ends if meter is not None else 0,
            epoch_end_s=meter.epoch_end_s if meter is not None else None,
            left_out_s=meter.left_out_s if meter is not None else 0.0,
            is_loader_rebuilt=self._batch_source.epoch.is_loader_rebuilt,
            first_batch_s=self._batch_source.first_batch_s if self._has_loader else None,
            durations_s=self._durations(),
            first_losses=self._losses.first_losses,
            first_batches=self._losses.first_batches,
            start_digest=self._losses.start_digest,
            is_loss_finite=self._losses.is_finite,
            has_changed_parameters=self.has_changed_parameters,
            num_steps=self._steps.num_steps,
            num_skipped_steps=self._steps.num_skipped,
            observation=self.observer.observation() if self.observer is not None else None,
        )
        rank_report.write(self._paths, result, is_bystander=not self._has_trained)

    @property
    def has_changed_parameters(self) -> bool:
        """Whether a watched parameter changed; True also with a learning rate of 0, and when nothing was compared."""
        optimizer = self._steps.primary
        if optimizer is None or not self._watched or self._steps.num_steps < 2:
            return True
        if all(float(group.get("lr", 1.0)) == 0.0 for group in optimizer.param_groups):
            return True
        return any(not torch.equal(_part(now), before) for now, before in self._watched)

    @property
    def _has_trained(self) -> bool:
        return self._steps.num_backwards > 0

    def _durations(self) -> dict[str, float]:
        """Seconds by part; the last part lasts until now."""
        return self._times.until_now(self.meter.entered_at if self.meter is not None else {})

    def _read_host_memory(self) -> dict[str, Any]:
        passing = self._passing.most_bytes() if self._passing is not None else None
        held, before = held_bytes(), self._held_before[0] if self._held_before else None
        is_whole = self.meter is not None and not self.meter.num_epoch_ends
        if self._growth is None and is_whole and held is not None and before is not None:
            self._growth = max(0, held - before)
        return {"held_host_bytes": held, "passing_host_bytes": passing, "host_growth_bytes": self._growth}


def _part(parameter: torch.Tensor) -> torch.Tensor:
    """A view of some rows of a parameter, evenly spread, or of a whole small parameter, in any memory format.

    Of a parameter spread over ranks only this rank's share is taken, since a request for more would wait for all ranks.
    """
    values = parameter.detach()
    if hasattr(values, "to_local"):
        values = values.to_local()
    if values.numel() <= MAX_WATCHED_VALUES:
        return values
    num_rows = max(1, MAX_WATCHED_VALUES // (values.numel() // values.shape[0]))
    return values[:: -(-values.shape[0] // num_rows)]


def _accumulation(blocks: Iterable[Block]) -> Observed:
    """Counted micro-batches per optimizer step; a mean, so fractions are possible."""
    counted = [block for block in blocks if block.phase is Phase.WINDOW] or list(blocks)
    num_steps = sum(block.num_steps for block in counted)
    seen = Observed()
    if num_steps:
        per_step = sum(block.num_micro_batches for block in counted) / num_steps
        is_whole = abs(per_step - round(per_step)) < 0.05
        seen.note("grad_accum_steps", round(per_step) if is_whole else round(per_step, 2))
    return seen
