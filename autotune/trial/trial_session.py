"""Runs one trial in this process: applies settings, gives batches, measures, reports, and ends the process."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from autotune.measure.block import Phase, data_wait_fraction
from autotune.measure.window_stopping import StopReason
from autotune.model.result import RankStatus
from autotune.protocol.job import TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.protocol.progress_marks import Mark
from autotune.settings.cudnn_benchmark import searched_under
from autotune.trial.apply.applied import AppliedSettings
from autotune.trial.apply.environment_seams import adapt_to_large_blocks
from autotune.trial.live.windows import Windows
from autotune.trial.loader.batch_source import MAX_AHEAD, BatchSource
from autotune.trial.loader.foreign_batches import ForeignBatches
from autotune.trial.loader.loaders import UNKNOWN_WORKERS, LoaderRecord, NextBatch, SwitchedError
from autotune.trial.loader.longest_batch import LongestBatch
from autotune.trial.meter.counters import declared_samples
from autotune.trial.meter.durations import PartTimes
from autotune.trial.meter.measuring_plan import Plan
from autotune.trial.meter.meter import Meter
from autotune.trial.meter.rank_sync import Agreement, Progress
from autotune.trial.meter.saves import Saves
from autotune.trial.probe.foreign_loaders import UNSEEN_QUEUE, may_read_ahead
from autotune.trial.report import rank_report
from autotune.trial.report.trial_report import TrialReport
from autotune.trial.script_questions import ScriptQuestions
from autotune.trial.start import forked_heap
from autotune.trial.start.early_seams import Prelude
from autotune.trial.step.losses import LossWatch
from autotune.trial.step.memory_format import align_states
from autotune.trial.torch import torch_names
from autotune.trial.torch.allocator import AllocatorWatch, num_page_locked
from autotune.trial.torch.batch_structure import known_length
from autotune.trial.torch.device_clock import clock_for
from autotune.trial.torch.kernel_searches import KernelSearches
from autotune.trial.torch.patching import Restore, recorded, unwrap

if TYPE_CHECKING:
    from autotune.trial.observing.observer import Observer

NUM_BLIND_STEPS = 24
"""Optimizer steps without a batch of the training loader after which the trial ends; the probe needed six steps."""

FASTEST = 16
"""Largest speed-up over the probe for which a trial's long epoch suffices; a faster trial measures an epoch's end."""
SHORT_EPOCH, BETWEEN_ENDS = 64, 64
"""Batches of an epoch that ended within the probe, and a further speed-up of such a script between the ends of epochs.
A validation of a third of a second after every third step of a millisecond slows the probe by a factor of 100."""
BESIDE_WINDOW_S, WINDOW_PATIENCE = 30.0, 4.0
"""Seconds of training outside the window, such as warm-up and restart, and a multiple of the longest window."""
SHORTEST_STEP_S = 1e-4
MAX_LEAST_EPOCH = 1 << 20
"""Most batches of a long epoch, since scripts make tables with a rate for every step."""


class MeasuredSession(ScriptQuestions):
    """A trial, from the application of the settings to the report.

    Args:
        job: The settings, facts and limits of the trial.
        paths: The trial's files.
        times: Times of the trial's parts so far.
        prelude: The seams attached before the settings were known.
        windows: The measurements of this process; None to end the process after the report.
        before: The measurement before in this process, after its `remove`; None for the first.
    """

    def __init__(
        self,
        job: TrialJob,
        paths: TrialPaths,
        times: PartTimes,
        prelude: Prelude,
        *,
        windows: Windows[MeasuredSession] | None = None,
        before: MeasuredSession | None = None,
    ) -> None:
        self._batch_source: BatchSource
        self._report: TrialReport
        self._job, self._paths, self._times = job, paths, times
        self._prelude = prelude
        self._windows = windows
        self._seams: list[Restore] = []
        self._epoch_before = before._batch_source.epoch if before is not None else None
        """The running iteration under the settings before; None in the first measurement."""
        self._applied = AppliedSettings(job, prelude.steps, prelude.loaders, is_later=before is not None)
        self._steps = self._applied.steps
        self._allocator, self._saves = AllocatorWatch(), Saves()
        self._searches: KernelSearches = before._searches if before is not None else KernelSearches()
        self._searches.begin(searched_under(job.request.settings))
        facts = job.facts
        loader = facts.loader if facts is not None else None
        self._has_loader = loader is not None
        num_passes = loader.num_passes_before_training if loader is not None and before is None else 0
        self._batch_source = BatchSource(self._steps, self._start_meter, num_passes_before_training=num_passes)
        self._batch_source.batch_factor = job.request.batch_probe_factor or 1
        self._batch_source.num_free_steps = 0 if before is None else 1
        self._observer: Observer | None = None
        if job.diagnoses:
            from autotune.trial.observing.observer import Observer

            self._observer = Observer(
                job,
                paths,
                self._steps,
                self._applied.roots,
                self._batch_source,
                at_begin=lambda: self._report.note_memory(),
                wait_fraction=self._wait_fraction,
            )
        self._meter: Meter | None = None
        self._num_needed = 0
        """Batches of an epoch begun from outside that the script takes within its running loop."""
        self._is_measured = False
        """Whether the window is over and reported."""
        self._losses = LossWatch(self._steps, self._applied.roots)
        self._report = TrialReport(
            paths, times, self._applied, self._batch_source, self._losses, self._allocator, has_loader=self._has_loader
        )
        self._report.observer = self._observer
        if facts is not None and self._has_loader and facts.batches_vary and job.request.looks_at_growth:
            self._report.longest_batch = LongestBatch(self._batch_source, self._longest_begins)
        if before is not None:
            self._report.set_by_script = before._report.set_by_script
        self._set_by_script = self._report.set_by_script

    def install(self) -> None:
        """Attaches to torch, and puts the settings in force."""
        with recorded() as self._seams:
            self._install()

    def remove(self) -> list[str]:
        """Detaches from torch, and takes the settings back; returns what stays wrapped by others."""
        self._applied.loaders.retire()  # First: the seam at the end of workers opens the gate for workers that wait.
        left = [*self._applied.remove(), *unwrap(self._seams)]
        self._steps.begin_anew()
        self._meter = None
        return left

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self._report.world_size

    def _install(self) -> None:
        if self._job.facts is not None and self._job.facts.frees_larger_blocks:
            adapt_to_large_blocks()  # No trial comes to the validation that does so in the real run.
        self._times.install()
        self._allocator.install()
        self._saves.install()
        self._applied.install()
        if self._job.device != "cpu" and self._job.facts is not None and self._job.facts.num_convolutions:
            self._applied.roots.on_inputs.append(self._searches.note)
        self._batch_source.install()
        if self._observer is not None:
            self._observer.install()
        loaders = self._applied.loaders
        self._batch_source.copies = self._applied.copies_ahead
        taken = self._applied.taking(self._batch_source.next_batch)
        loaders.taker = lambda record: taken if self._is_training(record) else self._taken_beside(record)
        loaders.built = self._built
        loaders.iterates = self._iterates
        loaders.looks_at_source = True
        loaders.iterated = self._iterated
        loaders.goes_on = self._goes_on
        if self._epoch_before is not None:
            self._applied.roots.prepare.append(lambda _: align_states(self._steps.optimizers))
        self._batch_source.before_next(*self._applied.before_batch)
        self._batch_source.at_epoch_end(self._applied.epoch_ends)
        self._losses.install()
        self._batch_source.at_first_batch(lambda _: self._report.training_begins())
        self._batch_source.at_early_batch(self._losses.next_batch)
        if self._batch_source.num_free_steps:
            self._steps.on_step.append(self._free_step_ended)  # First: the next tells the supervisor of the step.
        self._steps.on_step.append(self._stepped)
        self._prelude.session = self

    # Batches and meter -----------------------------------------------------------------------------------------

    def _is_training(self, record: LoaderRecord) -> bool:
        return self._applied.is_training(record.key)

    def _taken_beside(self, record: LoaderRecord) -> NextBatch | None:
        return self._batch_source.beside.take(record) if self._applied.is_beside(record.key) else None

    def _built(self, record: LoaderRecord, loader: Any) -> None:
        if self._is_training(record) and not self._job.keeps_epochs:
            self._batch_source.lengthen(loader, self._least_epoch(known_length(loader)))

    def _least_epoch(self, length: int | None) -> int:
        """Least batches of the trial's long epoch; 0 for a script that reads a whole epoch before training.

        Args:
            length: Batches of the script's own epoch; None when unknown.
        """
        facts, settings = self._job.facts, self._job.request.settings
        assert facts is not None and settings is not None
        if facts.loader is not None and facts.loader.is_read_before_training:
            return 0
        per_step = max(settings.grad_accum_steps, facts.num_micro_batches_per_step)
        longest_s = BESIDE_WINDOW_S + WINDOW_PATIENCE * self._job.request.window.max_window_s
        faster = FASTEST * (BETWEEN_ENDS if length is not None and length < SHORT_EPOCH else 1)
        num_batches = faster * per_step * longest_s / max(facts.step_s, SHORTEST_STEP_S)
        return math.ceil(min(num_batches, MAX_LEAST_EPOCH))

    def _iterates(self, record: LoaderRecord, loader: Any) -> None:
        if self._is_training(record):
            self._applied.note_loader(loader)
            if self._observer is not None:
                self._observer.before_iteration(loader)
            self._batch_source.iterates(record, loader)
            if self._observer is not None:
                self._observer.after_gate(loader)
        elif self._applied.is_beside(record.key):
            self._applied.note_loader_beside(loader)
            self._batch_source.beside.iterates(record, loader)

    def _iterated(self, record: LoaderRecord, loader: Any, iterator: Any) -> None:
        if self._is_training(record):
            self._batch_source.iterated(record, loader, iterator)
            if loader.num_workers > 0:
                self._prelude.loader_has_workers()
        elif self._applied.is_beside(record.key):
            self._batch_source.beside.iterated(record, loader, iterator)

    def _goes_on(self, before: Any, iterator: Any) -> None:
        """Lets an epoch of the script go on under these settings."""
        epoch = self._batch_source.epoch
        if self._epoch_before is not None and self._epoch_before.is_of(before) and epoch.is_of(iterator):
            epoch.goes_on(self._epoch_before)

    def _start_meter(self, num_workers: int, num_queued: int) -> Meter:
        forked_heap.settle()  # Only now: the first step does not wait for it.
        rank, world_size = self._report.note_rank()
        facts, settings = self._job.facts, self._job.request.settings
        assert facts is not None and settings is not None
        incumbent = self._job.request.incumbent_samples_per_second
        plan = Plan(
            rule=self._job.request.window,
            has_loader=self._has_loader,
            num_workers=num_workers,
            num_queued=num_queued,
            micro_batches_per_step=(
                max(settings.grad_accum_steps, facts.num_micro_batches_per_step) if self._has_loader else 1
            ),
            incumbent_samples_per_second=incumbent / world_size if incumbent is not None else None,
            samples_per_step=self._declared_samples(world_size),
            has_foreign_loader=self._counts_foreign,
            batches_vary=facts.batches_vary,
            is_compute_only=self._job.request.batch_probe_factor is not None,
            epoch_micro_batches=self._batch_source.epoch.num_batches if self._has_loader else None,
            first_batch_s=self._batch_source.first_batch_s,
            script_steps=self._job.script_steps,
        )
        self._meter = Meter(
            plan,
            steps=self._steps,
            clock=clock_for(self._job.device),
            agreement=Agreement(Progress(self._paths.progress), rank, world_size),
            open_gate=self._batch_source.open_gate,
            finish=self._finish,
            measured=self._window_is_over,
            at_phase=self._phase_began,
            at_block_end=self._allocator.block_ended,
            built=self._batch_source.built,
            num_page_locked=num_page_locked,
            num_graphs=torch_names.num_compiled_graphs,
            num_searches=lambda: self._searches.num,
            num_saves=lambda: self._saves.num,
            epochs=self if num_workers else None,
            watcher=self._observer if self._observer is not None else self._report.longest_batch,
        )
        self._report.meter = self._meter
        return self._meter

    def end_epoch(self, num_needed: int) -> float | None:
        """Reads the held memory while the queues are full, then ends the training loader's epoch."""
        self._report.note_held_memory()
        self._num_needed = num_needed + MAX_AHEAD
        return self._batch_source.end_epoch(self._num_needed)

    def begin_epoch(self) -> None:
        """Begins the next epoch of the training loader, and of the loaders beside."""
        self._batch_source.epoch.begin_next()
        self._batch_source.beside.begin_next(self._applied.loaders.end_iteration, self._num_needed)

    def _declared_samples(self, world_size: int) -> float | None:
        declared = self._job.samples_per_step
        if declared is not None:
            declared *= self._job.request.batch_probe_factor or 1
        is_counted = self._has_loader or self._counts_foreign
        return declared_samples(declared, counts_batches=is_counted, world_size=world_size)

    @property
    def _counts_foreign(self) -> bool:
        """Whether the script's loader is no DataLoader, and its batches are counted."""
        facts = self._job.facts
        return not self._has_loader and facts is not None and bool(facts.foreign_loader)

    def _phase_began(self, phase: Phase) -> None:
        self._losses.measure(phase is Phase.WINDOW)
        if phase not in (Phase.WARMUP, Phase.COMPUTE):
            self._losses.next_batches_unseen()
        self._batch_source.phase_began(phase)
        if phase is Phase.WINDOW and self._job.request.looks_at_growth:
            self._report.growth_begins()

    def _longest_begins(self) -> None:
        """Lets an error on the longest batch count against the settings."""
        self._report.longest_begins()
        self._is_measured = False

    def _stepped(self, optimizer: torch.optim.Optimizer | None) -> None:
        if optimizer is not self._steps.primary:
            return
        self._report.training_begins()  # for a script without a batch of the loader
        if optimizer is not None:
            self._report.watch_parameters(optimizer)
        if self._steps.num_steps == 1 and rank_report.identity()[0] == 0:
            # The script has started, and may do much before it asks for the next batch.
            Progress(self._paths.progress).put(Mark.STEPS, 1)
        if self._has_loader:
            if self._batch_source.has_delivered:
                self._steps.forget(self._stepped)
            elif self._steps.num_steps >= NUM_BLIND_STEPS:
                self._end_blind()
        elif self._meter is None:
            if self._steps.num_updates <= self._batch_source.num_free_steps:
                return
            self._report.has_unseen_queue = may_read_ahead()
            self._start_meter(0, UNSEEN_QUEUE if self._report.has_unseen_queue else 0)
            if self._counts_foreign:
                self._watch_foreign_loader()
        else:
            with suppress(SwitchedError):
                self._meter.arrive()

    def _free_step_ended(self, _: torch.optim.Optimizer | None) -> None:
        """Begins the peaks anew: the first step may have a batch of the settings before, or an uncompiled model."""
        self._steps.forget(self._free_step_ended)
        self._allocator.begin_anew()
        self._report.forget_peaks()

    def _watch_foreign_loader(self) -> None:
        foreign = ForeignBatches(
            self._foreign_batch,
            cached=lambda: self._meter if self._meter is not None and self._meter.uses_cached_batch else None,
            num_backwards=lambda: self._steps.num_backwards,
        )
        foreign.attach(self._steps.thread)
        if self._observer is not None:
            self._observer.watch_foreign_loader(foreign)

    def _foreign_batch(self, num_samples: int, wait_s: float) -> None:
        if self._meter is not None:
            self._meter.counters.foreign_batch(num_samples, wait_s)

    # The end ---------------------------------------------------------------------------------------------------

    def _end_blind(self) -> None:
        """Ends a trial without the training loader of the probe: no setting of the loader is in force."""
        self._set_by_script.note("num_workers", None, UNKNOWN_WORKERS)
        self._report.write(RankStatus.ENDED)
        self._end_process()

    def _window_is_over(self, reason: StopReason) -> None:
        """Writes the measurement before the restart, in case the script ends early."""
        self._is_measured = self._observer is None  # A diagnosis without an observation is of no use.
        if self._is_measured:
            self._report.write(RankStatus.MEASURED, is_converged=reason is StopReason.CONVERGED, is_final=False)

    def _finish(self, reason: StopReason) -> None:
        status = RankStatus.RACED_OUT if reason is StopReason.RACED_OUT else RankStatus.MEASURED
        self._report.write(status, is_converged=reason is StopReason.CONVERGED)
        if self._windows is not None:
            obstacle = self._why_not_switched()
            if not obstacle:
                self._windows.go_on(self)
            self._windows.say(obstacle)
        self._end_process()

    def _why_not_switched(self) -> str:
        """Why the running iterations cannot go on under other settings; empty when they can."""
        if self._batch_source.is_read_ahead:
            return "a thread of the script's own reads its loader"
        return "" if self._applied.loaders.may_switch else "the script has dropped a loader that it iterates over"

    def _wait_fraction(self) -> float:
        """Share of the window spent waiting for data; 0 before a window."""
        blocks = self._meter.blocks() if self._meter is not None else ()
        window = [block for block in blocks if block.phase is Phase.WINDOW]
        return data_wait_fraction(window) if window else 0.0

    def _end_process(self) -> None:
        rank_report.wait_for_others(self._paths, self._report.world_size)
        rank_report.end_process()

    def report_end(self) -> None:
        """Reports the measurement so far when the script ends by itself; the tuner decides whether it suffices."""
        if self._report.is_due and not self._is_measured:
            self._report.write(RankStatus.ENDED)

    def report_error(self, error: BaseException) -> None:
        """Reports the exception that ended the script, unless a measurement is reported already."""
        if not self._report.is_due or self._is_measured:
            return
        if self._observer is not None and self._observer.may_fail:
            self._report.write(RankStatus.MEASURED)
        else:
            self._report.write_error(error)
