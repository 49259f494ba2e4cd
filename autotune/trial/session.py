"""One trial in this process: settings applied, batches fed, the window measured, the report written, and the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from autotune.measure.block import Block, Phase
from autotune.measure.stopping import StopReason
from autotune.model.job import TrialJob, TrialPaths
from autotune.model.result import PAST_ITS_EPOCH, RankResult, RankStatus
from autotune.settings import Group, Settings
from autotune.trial import rank_report
from autotune.trial.allocator import AllocatorWatch
from autotune.trial.applied import AppliedSettings
from autotune.trial.beginning import Beginning
from autotune.trial.clock import clock_for
from autotune.trial.durations import PartTimes
from autotune.trial.failure import describe
from autotune.trial.feed import Feed
from autotune.trial.foreign_loaders import UNSEEN_QUEUE, may_read_ahead
from autotune.trial.host_memory import held_bytes
from autotune.trial.loaders import UNKNOWN_WORKERS, LoaderRecord
from autotune.trial.losses import LossWatch
from autotune.trial.measuring_plan import Plan
from autotune.trial.meter import Meter
from autotune.trial.ranks import Agreement, Mark, Progress
from autotune.trial.steps import parameters_of

if TYPE_CHECKING:
    from autotune.trial.observing.observer import Observer

NUM_BLIND_STEPS = 24
"""Optimizer steps without a batch of the training loader after which it will not come: the probe needed six."""
NUM_WATCHED_PARAMETERS = 4
"""Parameters compared at the end with their values after the first step: training must change them."""


class MeasuredSession:
    """A trial: from the moment from which on its settings matter to the report.

    Args:
        job: What is measured.
        paths: Its files.
        times: Its parts until now.
        beginning: What is attached already.
    """

    def __init__(self, job: TrialJob, paths: TrialPaths, times: PartTimes, beginning: Beginning) -> None:
        self._job, self._paths, self._times = job, paths, times
        self._beginning = beginning
        self._applied = AppliedSettings(job, beginning.steps)
        self._steps = self._applied.steps
        self._allocator = AllocatorWatch()
        loader = job.facts.loader if job.facts is not None else None
        self._has_loader = loader is not None
        num_passes = loader.num_passes_before_training if loader is not None else 0
        self._feed = Feed(self._steps, self._start_meter, num_passes_before_training=num_passes)
        self._feed.batch_factor = job.batch_probe_factor
        self._observer: Observer | None = None
        if job.diagnoses:
            from autotune.trial.observing.observer import Observer

            self._observer = Observer(
                job, paths, self._steps, self._applied.roots, self._feed, at_begin=self._note_memory
            )
        self._meter: Meter | None = None
        self._rank, self._world_size = 0, 1
        self._said: dict[str, str] = {}
        self._losses = LossWatch(self._steps, self._applied.roots)
        self._watched: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._has_unseen_queue = False
        self._allocated: dict[str, Any] | None = None
        """The allocator's figures when the window ended; None where nothing was done after it."""
        self._held_host_bytes: int | None = None
        """When the window ended; None while it has not."""
        self._is_reported = False

    def install(self) -> None:
        """Attaches to torch, and puts the settings in force."""
        self._times.install()
        self._allocator.install()
        self._applied.install()
        self._feed.install()
        if self._observer is not None:
            self._observer.install()
        loaders = self._applied.loaders
        loaders.taker = lambda record: self._feed.next_batch if self._is_training(record) else None
        loaders.built = self._built
        loaders.iterates = self._iterates
        loaders.iterated = self._iterated
        self._feed.before_next(*self._applied.before_batch)
        self._feed.at_epoch_end(self._applied.epoch_ends)
        self._losses.install()
        self._feed.at_first_batch(self._losses.first_batch)
        self._steps.on_step.append(self._stepped)
        self._beginning.session = self

    # What the public API asks of a session -----------------------------------------------------------------

    @property
    def settings(self) -> Settings | None:
        """The trial's settings; None in the baseline, where the defaults of the script's call hold."""
        return None if self._job.settings == self._job.natural else self._job.settings

    def claim(self, group: Group) -> None:
        """The script applies this group itself."""
        self._applied.claims.add(group)

    def declare_knobs(self, defaults: Mapping[str, str]) -> None:
        """Known from the probe already."""

    def wrap_loader(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches as they come: steps are the boundaries of a loader that is not torch's."""
        return iter(batches)

    def optimizer_stepped(self, skipped: bool) -> None:
        """Seen already, at the scaler."""

    def observe(self, field: str, value: str) -> None:
        """Notes a setting that the script put in force itself."""
        self._said[field] = value

    # Feeding and metering --------------------------------------------------------------------------------------

    def _is_training(self, record: LoaderRecord) -> bool:
        return self._applied.is_training(record.key)

    def _built(self, record: LoaderRecord, loader: Any) -> None:
        if self._is_training(record) and not self._job.keeps_epochs:
            self._feed.make_endless(loader)

    def _iterates(self, record: LoaderRecord, loader: Any) -> None:
        if self._is_training(record):
            self._applied.note_loader(loader)
            if self._observer is not None:
                self._observer.before_iteration(loader)
            self._feed.iterates(record, loader)
            if self._observer is not None:
                self._observer.after_gate(loader)

    def _iterated(self, record: LoaderRecord, loader: Any, iterator: Any) -> None:
        if self._is_training(record):
            self._feed.iterated(record, loader, iterator)

    def _start_meter(self, num_workers: int, num_queued: int) -> Meter:
        self._rank, self._world_size = rank_report.identity()
        facts, settings = self._job.facts, self._job.settings
        assert facts is not None and settings is not None
        plan = Plan(
            rule=self._job.window,
            has_loader=self._has_loader,
            num_workers=num_workers,
            num_queued=num_queued,
            micro_batches_per_step=max(settings.grad_accum_steps, facts.num_micro_batches_per_step),
            incumbent_samples_per_second=self._job.incumbent_samples_per_second,
            samples_per_step=self._declared_samples(),
            is_compute_only=self._job.batch_probe_factor > 1,
            epoch_micro_batches=self._feed.epoch.num_batches if self._has_loader else None,
            first_batch_s=self._feed.first_batch_s,
            script_steps=self._job.script_steps,
        )
        self._meter = Meter(
            plan,
            steps=self._steps,
            clock=clock_for(self._job.device),
            agreement=Agreement(Progress(self._paths.progress), self._rank, self._world_size),
            open_gate=self._feed.open_gate,
            finish=self._finish,
            at_phase=self._phase_began,
            at_block_end=self._allocator.block_ended,
            built=self._feed.built,
            epochs=self if num_workers else None,
            watcher=self._observer,
        )
        return self._meter

    def _note_memory(self) -> None:
        self._held_host_bytes = self._held_host_bytes or held_bytes()
        self._allocated = self._allocator.figures()

    def end_epoch(self) -> float | None:
        """Ends the training loader's epoch after the window; what is held is read before, while the queues are full."""
        self._held_host_bytes = held_bytes()
        return self._feed.end_epoch()

    def begin_epoch(self) -> None:
        """Begins the training loader's next epoch."""
        self._feed.epoch.begin_next()

    def _declared_samples(self) -> float | None:
        if self._job.samples_per_step is not None:
            return self._job.samples_per_step * self._job.batch_probe_factor
        return None if self._has_loader else 1.0

    def _phase_began(self, phase: Phase) -> None:
        self._losses.measure(phase is Phase.WINDOW)

    def _stepped(self, optimizer: torch.optim.Optimizer | None) -> None:
        if optimizer is not self._steps.primary:
            return
        if optimizer is not None and not self._watched:
            moving = [p for p in parameters_of(optimizer) if p.grad is not None]
            smallest = sorted(moving, key=lambda p: p.numel())[:NUM_WATCHED_PARAMETERS]
            self._watched = [(p, p.detach().clone()) for p in smallest]
        if self._steps.num_steps == 1 and rank_report.identity()[0] == 0:
            # The script may do much before it asks for its next batch: it has started, whatever comes now.
            Progress(self._paths.progress).put(Mark.STEPS, 1)
        if self._has_loader:
            if self._feed.has_fed:
                self._steps.forget(self._stepped)
            elif self._steps.num_steps >= NUM_BLIND_STEPS:
                self._end_blind()
        elif self._meter is None:
            self._has_unseen_queue = may_read_ahead()
            self._start_meter(0, UNSEEN_QUEUE if self._has_unseen_queue else 0)
        else:
            self._meter.arrive()

    # The end ---------------------------------------------------------------------------------------------------

    def _end_blind(self) -> None:
        """The loader that trained in the probe does not train here: no setting of it is in force."""
        self._said["num_workers"] = UNKNOWN_WORKERS
        self._report(RankStatus.ENDED)
        rank_report.wait_for_others(self._paths, self._world_size)
        rank_report.end_process()

    def _finish(self, reason: StopReason) -> None:
        status = RankStatus.RACED_OUT if reason is StopReason.RACED_OUT else RankStatus.MEASURED
        self._report(status, is_converged=reason is StopReason.CONVERGED)
        rank_report.wait_for_others(self._paths, self._world_size)
        rank_report.end_process()

    @property
    def _has_trained(self) -> bool:
        """Whether this is a process that trains, and no launcher, worker or helper of one."""
        return self._steps.num_backwards > 0

    def report_end(self) -> None:
        """The script ended by itself: what was measured so far is reported, the tuner decides whether it is enough."""
        if not self._is_reported and (self._has_trained or rank_report.is_main_process()):
            self._report(RankStatus.ENDED)

    def report_error(self, error: BaseException) -> None:
        """The script ended with an exception: that is the report, unless there is one."""
        if self._is_reported or not (self._has_trained or rank_report.is_main_process()):
            return
        if self._observer is not None and self._observer.may_fail:
            self._report(RankStatus.MEASURED)
            return
        self._is_reported = True
        # A meter knows its rank from when the process group still stood.
        rank, world_size = rank_report.identity() if self._meter is None else (self._rank, self._world_size)
        result = RankResult(
            rank=rank,
            world_size=world_size,
            status=RankStatus.RAISED,
            error=describe(error),
            durations_s=self._durations(),
            **self._allocator.figures(),
            notes=(PAST_ITS_EPOCH,) if self._feed.epoch.is_past_end else (),
        )
        rank_report.write(self._paths, result, is_bystander=not self._has_trained)

    def _report(self, status: RankStatus, *, is_converged: bool = False) -> None:
        self._is_reported = True
        meter = self._meter
        if meter is None:
            self._rank, self._world_size = rank_report.identity()
        blocks = meter.blocks() if meter is not None else ()
        counted = self._applied.counted() if self._feed.is_read_ahead else _accumulation(blocks)
        observed = {**counted, **self._applied.observed(), **self._said}
        result = RankResult(
            rank=self._rank,
            world_size=self._world_size,
            status=status,
            blocks=blocks,
            is_converged=is_converged,
            is_primed=self._feed.is_primed or self._has_unseen_queue,
            compute_samples_per_second=meter.compute_samples_per_second if meter is not None else None,
            observed=observed,
            held_host_bytes=self._held_host_bytes or held_bytes(),
            **(self._allocated or self._allocator.figures()),
            epoch_micro_batches=self._feed.epoch.num_batches if self._has_loader else None,
            num_epoch_ends=meter.num_epoch_ends if meter is not None else 0,
            epoch_end_s=meter.epoch_end_s if meter is not None else None,
            is_loader_rebuilt=self._feed.epoch.is_loader_rebuilt,
            first_batch_s=self._feed.first_batch_s if self._has_loader else None,
            durations_s=self._durations(),
            first_losses=self._losses.first_losses,
            start_digest=self._losses.start_digest,
            is_loss_finite=self._losses.is_finite,
            has_changed_parameters=self._has_changed_parameters(),
            num_steps=self._steps.num_steps,
            num_skipped_steps=self._steps.num_skipped,
            observation=self._observer.observation() if self._observer is not None else None,
        )
        rank_report.write(self._paths, result, is_bystander=not self._has_trained)

    def _has_changed_parameters(self) -> bool:
        """Whether a watched parameter moved; a learning rate of 0 moves nothing, and that is the schedule's affair."""
        optimizer = self._steps.primary
        if optimizer is None or not self._watched or self._steps.num_steps < 2:
            return True
        if all(float(group.get("lr", 1.0)) == 0.0 for group in optimizer.param_groups):
            return True
        return any(not torch.equal(now, before) for now, before in self._watched)

    def _durations(self) -> dict[str, float]:
        """Seconds by part; the last one's is the time until now."""
        return self._times.until_now(self._meter.entered_at if self._meter is not None else {})


def _accumulation(blocks: Iterable[Block]) -> dict[str, str]:
    """Micro-batches per optimizer step, as counted."""
    counted = [block for block in blocks if block.phase is Phase.WINDOW] or list(blocks)
    num_steps = sum(block.num_steps for block in counted)
    if num_steps == 0:
        return {}
    per_step = sum(block.num_micro_batches for block in counted) / num_steps
    return {"grad_accum_steps": str(round(per_step)) if abs(per_step - round(per_step)) < 0.05 else f"{per_step:.2f}"}
