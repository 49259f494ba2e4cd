"""Counts real training under settings for a while, as `autotune verify` compares the script with `autotune run`.

Settings are applied as in real training. There is no cached batch, no gate and no prolonged epoch: the count only reads
the clock at optimizer steps, and ends the process after the window. The pause between two epochs, from the last step to
the next iteration over the loader, belongs to no rate; the start of an epoch does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic, perf_counter
from typing import Any

import torch

from autotune.measure.block import Block, Phase
from autotune.measure.window_stopping import LEAST_BLOCKS
from autotune.model.result import RankResult, RankStatus
from autotune.protocol.job import TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.protocol.progress_marks import Mark
from autotune.trial.loader.foreign_batches import ForeignBatches
from autotune.trial.loader.loaders import LoaderRecord
from autotune.trial.meter.block_recorder import Count
from autotune.trial.meter.counters import Counters, declared_samples
from autotune.trial.meter.durations import PartTimes
from autotune.trial.meter.rank_sync import Agreement, Progress
from autotune.trial.observed_values import Observed
from autotune.trial.report import rank_report
from autotune.trial.report.failure import describe
from autotune.trial.run_session import RunSession
from autotune.trial.script_questions import ScriptQuestions
from autotune.trial.torch.allocator import AllocatorWatch
from autotune.trial.torch.batch_structure import SampleCount

SETTLE_SHARE = 1 / 6
"""Time from the first step to the window, as a share of the window: caches, clocks and the compiler settle."""
SETTLE_STEPS = 8
"""Fewest steps before the window."""
BLOCKS_IN_WINDOW = 60
"""Most blocks of a window."""
LEAST_SHARE = 1 / 3
"""Share of the window that suffices for a script that ends, or reaches the end of an epoch, before the window does."""


class CountedRun(RunSession, ScriptQuestions):
    """Real training in the sandbox, counted from some steps after the first to the end of the window.

    Args:
        job: The settings, and in `request.window.max_window_s` the length of the window.
        paths: Files of the run.
        times: Times of the run's parts so far.
    """

    def __init__(self, job: TrialJob, paths: TrialPaths, times: PartTimes) -> None:
        super().__init__(job)
        assert job.facts is not None
        self._paths, self._times = paths, times
        self._window_s = job.request.window.max_window_s
        self._has_loader = job.facts.loader is not None
        self._counts_foreign = not self._has_loader and bool(job.facts.foreign_loader)
        self._samples, self._allocator = SampleCount(), AllocatorWatch()
        self._counters: Counters | None = None
        """None before the first step."""
        self._agreement: Agreement | None = None
        self._set_by_script = Observed()
        self._entered_at: dict[Phase, float] = {}
        self._entered_step = 0
        self._num_queued = self._num_taken = 0
        """Batches in the queues of the loader's workers, and batches given to the script since the first step."""
        self._stepped_s = self._block_began_s = self._settles_from_s = 0.0
        self._arrived_s: float | None = None
        """End of the latest step, for a step noticed only later; None = now."""
        self._is_paused = False
        """Whether the script is between two epochs."""
        self._blocks: list[Block] = []
        self._count = _Sum()
        self._is_reported = False
        self._end_watch = rank_report.EndWatch(self._report_error, self._report_end)

    # The count --------------------------------------------------------------------------------------------------

    def install(self) -> None:
        """Attaches to torch."""
        self._times.install()
        self._allocator.install()
        super().install()
        self._applied.loaders.iterated = self._iterated
        self._applied.steps.on_step.append(self._counted_step)
        self._end_watch.install()

    def _iterates(self, record: LoaderRecord, loader: Any) -> None:
        super()._iterates(record, loader)
        if not self._applied.is_training(record.key):
            return
        self._samples.batch_size = loader.batch_size
        if self._counters is None:
            return
        is_read_ahead = self._applied.steps.thread != threading.get_ident()
        if is_read_ahead or self._is_paused:
            self._counters.arrive()
        else:  # The script left the epoch early, and has done other work since the last step.
            self._arrived_s = self._stepped_s
            self._counters.arrive()
            self._arrived_s = None
            self._pause(self._stepped_s)
        self._counters.begin_pass(is_left=not is_read_ahead and self._num_taken > 0, is_read_ahead=is_read_ahead)
        self._num_taken = 0
        self._go_on()

    def _iterated(self, record: LoaderRecord, loader: Any, _: Any) -> None:
        if self._applied.is_training(record.key):
            self._num_queued = loader.num_workers * (loader.prefetch_factor or 0)
            if loader.num_workers:
                self._end_watch.come_first()

    def _next_batch(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        counters = self._counters
        if counters is not None:
            counters.arrive()
        began = perf_counter()
        try:
            batch = super()._next_batch(iterator, original)
        except StopIteration:
            if counters is not None and self._applied.steps.thread == threading.get_ident():
                counters.arrive()  # The end of the epoch may have stepped pending micro-batches.
                self._wait_for_device()
                self._pause(perf_counter())
                self._num_taken = 0
            raise
        if counters is not None:
            self._num_taken += 1
            counters.delivered(self._samples.of(batch), perf_counter() - began)
        return batch

    def _counted_step(self, optimizer: torch.optim.Optimizer | None) -> None:
        steps = self._applied.steps
        if optimizer is not steps.primary:
            return
        self._stepped_s = perf_counter()
        if self._counters is None:
            self._begin()
        elif not self._has_loader:
            self._counters.arrive()

    def _begin(self) -> None:
        """Begins to count, after the first step."""
        rank, world_size = rank_report.identity()
        self._agreement = Agreement(Progress(self._paths.progress), rank, world_size)
        is_counted = self._has_loader or self._counts_foreign
        self._counters = Counters(
            self._applied.steps,
            has_loader=self._has_loader,
            samples_per_step=declared_samples(
                self._job.samples_per_step, counts_batches=is_counted, world_size=world_size
            ),
            micro_batches_per_step=1,
            end_step=None,
            end_block=self._step_ended,
        )
        if self._counts_foreign:
            ForeignBatches(self._counters.foreign_batch).attach(self._applied.steps.thread)
        self._entered_at[Phase.WARMUP] = monotonic()
        self._settles_from_s = self._block_began_s = perf_counter()
        self._agreement.done(1)

    def _step_ended(self) -> None:
        assert self._counters is not None and self._agreement is not None
        step = Count()
        self._counters.fill(step)
        self._count.add(step)
        num_steps, now_s = self._counters.num_updates, self._arrived_s or perf_counter()
        if Phase.WINDOW not in self._entered_at:
            if self._agreement.reached(Mark.WINDOW, wanted=self._is_settled(now_s), num_steps=num_steps, since=0):
                self._enter_window(num_steps)
        elif now_s - self._block_began_s >= self._window_s / BLOCKS_IN_WINDOW:
            self._end_block(now_s)
        measured_s = sum(block.duration_s for block in self._blocks)
        is_over = measured_s >= self._window_s and len(self._blocks) >= LEAST_BLOCKS
        self._agreement.done(num_steps, num_samples=self._count.all_samples, wait_s=self._counters.wait_s)
        if self._entered_step and self._agreement.reached(
            Mark.STOP, wanted=is_over, num_steps=num_steps, since=self._entered_step
        ):
            self._finish()

    def _is_settled(self, now_s: float) -> bool:
        """Whether the window may open: the queues that filled during a long first step are used up, within limits."""
        assert self._counters is not None
        elapsed_s = now_s - self._settles_from_s
        if elapsed_s >= self._window_s:
            return True
        is_drained = self._counters.num_taken >= 2 * self._num_queued
        return elapsed_s >= SETTLE_SHARE * self._window_s and self._counters.num_updates >= SETTLE_STEPS and is_drained

    def _enter_window(self, num_steps: int) -> None:
        self._wait_for_device()
        self._entered_at[Phase.WINDOW] = monotonic()
        self._entered_step = num_steps
        self._count.empty()
        self._block_began_s = perf_counter()

    def _end_block(self, now_s: float) -> None:
        block = self._count.block(now_s - self._block_began_s)
        if block is not None:
            self._blocks.append(block)
        self._count.empty()
        self._block_began_s = now_s

    def _pause(self, ended_s: float) -> None:
        """Ends the count at the end of an epoch: the script may validate or save now.

        Args:
            ended_s: End of the epoch, in seconds of `time.perf_counter`.
        """
        self._is_paused = True
        if self._entered_step:
            self._end_block(ended_s)
            if self._is_enough and self._agreement is not None and not self._agreement.is_shared:
                self._finish()

    def _go_on(self) -> None:
        """Counts again from the start of an epoch on."""
        assert self._counters is not None
        self._is_paused = False
        self._counters.begin_block()
        self._count.empty()
        self._block_began_s = perf_counter()

    @property
    def _is_enough(self) -> bool:
        """Whether a window that ends early still tells the rate."""
        measured_s = sum(block.duration_s for block in self._blocks)
        return len(self._blocks) >= LEAST_BLOCKS and measured_s >= LEAST_SHARE * self._window_s

    def _wait_for_device(self) -> None:
        """Waits for the queued kernels, so that the host's clock holds for the device at both ends of the window."""
        if self._job.device != "cpu":
            torch.cuda.synchronize()

    # The end ----------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        self._wait_for_device()
        self._end_block(perf_counter())
        self._report(RankStatus.MEASURED)
        rank_report.wait_for_others(self._paths, rank_report.identity()[1])
        rank_report.end_process()

    def _report_end(self) -> None:
        if not self._is_reported and (self._counters is not None or rank_report.is_main_process()):
            self._report(RankStatus.MEASURED if self._is_enough else RankStatus.ENDED)

    def _report_error(self, error: BaseException) -> None:
        if not self._is_reported and (self._counters is not None or rank_report.is_main_process()):
            self._report(RankStatus.RAISED, error)

    def _report(self, status: RankStatus, error: BaseException | None = None) -> None:
        self._is_reported = True
        rank, world_size = rank_report.identity()
        observed = self._observed()
        observed.update(self._set_by_script)
        result = RankResult(
            rank=rank,
            world_size=world_size,
            status=status,
            blocks=tuple(self._blocks) if error is None else (),
            is_converged=True,
            observed=observed.values,
            observed_comments=observed.comments,
            durations_s=self._times.until_now(self._entered_at),
            num_steps=self._applied.steps.num_steps,
            num_skipped_steps=self._applied.steps.num_skipped,
            error=describe(error) if error is not None else None,
            **self._allocator.figures(),
        )
        rank_report.write(self._paths, result, is_bystander=self._counters is None)


class _Sum:
    """Sums of the steps of one block, and all samples since the first step."""

    def __init__(self) -> None:
        self.all_samples = 0.0
        self.empty()

    def empty(self) -> None:
        """Begins a new block."""
        self._num_steps = self._num_micro_batches = self._num_skipped = 0
        self._num_samples = self._wait_s = 0.0

    def add(self, step: Count) -> None:
        """Adds a step."""
        self._num_steps += step.num_steps
        self._num_micro_batches += step.num_micro_batches
        self._num_skipped += step.num_skipped_steps
        self._num_samples += step.num_samples
        self._wait_s += step.wait_s
        self.all_samples += step.num_samples

    def block(self, duration_s: float) -> Block | None:
        """The block of the summed steps; None without a whole step."""
        if not (self._num_steps and self._num_micro_batches and self._num_samples > 0 and duration_s > 0):
            return None
        return Block(
            phase=Phase.WINDOW,
            num_steps=self._num_steps,
            num_micro_batches=self._num_micro_batches,
            num_samples=self._num_samples,
            duration_s=duration_s,
            data_wait_s=self._wait_s,
            num_skipped_steps=self._num_skipped,
        )
