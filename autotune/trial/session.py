"""One trial in this process: settings applied, batches fed, the window measured, the report written, and the end."""

from __future__ import annotations

import atexit
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

import torch

from autotune.measure.block import Block, Phase
from autotune.measure.stopping import StopReason
from autotune.model.job import TrialJob, TrialPaths
from autotune.model.result import RankResult, RankStatus
from autotune.settings import DEFAULT_PREFETCH_FACTOR, Group, Settings
from autotune.trial import rank_report
from autotune.trial.applied import AppliedSettings
from autotune.trial.clock import clock_for
from autotune.trial.failure import describe
from autotune.trial.feed import Feed
from autotune.trial.host_memory import held_bytes
from autotune.trial.loaders import LoaderRecord
from autotune.trial.meter import Meter, Plan
from autotune.trial.ranks import Agreement, Progress

NUM_FIRST_LOSSES = 8
NUM_WATCHED_PARAMETERS = 4
"""Parameters compared at the end with their values after the first step: training must change them."""


class MeasuredSession:
    """A trial: from the import of torch to the report."""

    def __init__(self, job: TrialJob, paths: TrialPaths, started_at: float) -> None:
        self._job, self._paths, self._started_at = job, paths, started_at
        self._attached_at = time.monotonic()
        self._applied = AppliedSettings(job)
        self._steps = self._applied.steps
        self._feed = Feed(self._steps, self._start_meter)
        self._meter: Meter | None = None
        self._rank, self._world_size = 0, 1
        self._said: dict[str, str] = {}
        self._losses: list[torch.Tensor] = []
        self._last_loss: torch.Tensor | None = None
        self._watched: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._is_reported = False

    def install(self) -> None:
        """Attaches to torch, and to the ways in which the script can end."""
        self._applied.install()
        loaders = self._applied.loaders
        loaders.next_batch = self._next_batch
        override = loaders.override
        assert override is not None
        loaders.override = lambda key, arguments: self._build_training_loader(key, override(key, arguments))
        loaders.built = self._built
        loaders.iterates = lambda record: self._feed.iterates(record) if self._is_training(record) else None
        self._feed.before_next(self._applied.before_batch)
        self._feed.at_epoch_end(self._applied.epoch_ends)
        self._steps.on_backward.append(self._backward)
        self._steps.on_step.append(self._stepped)
        report_endings(self._report_error, self._report_end)

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
        """Counts the steps that the script's scaler held back."""
        if skipped:
            self._steps.skipped()

    def observe(self, field: str, value: str) -> None:
        """Notes a setting that the script put in force itself."""
        self._said[field] = value

    # Feeding and metering --------------------------------------------------------------------------------------

    def _is_training(self, record: LoaderRecord) -> bool:
        return self._applied.is_training(record.key)

    def _build_training_loader(self, key: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._feed.gate(arguments) if self._applied.is_training(key) else arguments

    def _built(self, record: LoaderRecord) -> None:
        if self._is_training(record):
            self._applied.training_loader = record.loader
            self._feed.make_endless(record.loader)

    def _next_batch(self, record: LoaderRecord, iterator: Any, original: Callable[[Any], Any]) -> Any:
        if not self._is_training(record):
            return original(iterator)
        return self._feed.next_batch(record, iterator, original)

    def _start_meter(self, loader: Any, is_gated: bool) -> Meter:
        self._rank, self._world_size = rank_report.identity()
        facts, settings = self._job.facts, self._job.settings
        assert facts is not None and settings is not None
        num_workers = loader.num_workers if loader is not None else 0
        prefetch = (loader.prefetch_factor if loader is not None else None) or DEFAULT_PREFETCH_FACTOR
        plan = Plan(
            rule=self._job.window,
            has_loader=loader is not None,
            num_workers=num_workers,
            num_queued=num_workers * prefetch,
            is_gated=is_gated,
            micro_batches_per_step=max(settings.grad_accum_steps, facts.num_micro_batches_per_step),
            incumbent_samples_per_second=self._job.incumbent_samples_per_second,
            samples_per_step=self._declared_samples(loader),
        )
        self._meter = Meter(
            plan,
            steps=self._steps,
            clock=clock_for(self._job.device),
            agreement=Agreement(Progress(self._paths.progress), self._rank, self._world_size),
            open_gate=self._feed.open_gate,
            finish=self._finish,
        )
        return self._meter

    def _declared_samples(self, loader: Any) -> float | None:
        if self._job.samples_per_step is not None:
            return self._job.samples_per_step
        return 1.0 if loader is None else None

    def _backward(self, loss: torch.Tensor | None) -> None:
        if loss is None or loss.numel() != 1:
            return
        self._last_loss = loss.detach()
        if len(self._losses) < NUM_FIRST_LOSSES:
            self._losses.append(self._last_loss)

    def _stepped(self, optimizer: torch.optim.Optimizer) -> None:
        if optimizer is not self._steps.primary:
            return
        if not self._watched:
            moving = [p for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
            smallest = sorted(moving, key=lambda p: p.numel())[:NUM_WATCHED_PARAMETERS]
            self._watched = [(p, p.detach().clone()) for p in smallest]
        facts = self._job.facts
        if facts is not None and facts.loader is None:
            meter = self._meter or self._start_meter(None, False)
            meter.arrive()

    # The end ---------------------------------------------------------------------------------------------------

    def _finish(self, reason: StopReason) -> None:
        status = RankStatus.RACED_OUT if reason is StopReason.RACED_OUT else RankStatus.MEASURED
        self._report(status, is_converged=reason is StopReason.CONVERGED)
        rank_report.end_process()

    def _report_end(self) -> None:
        """The script ended by itself: what was measured so far is reported, the tuner decides whether it is enough."""
        if not self._is_reported and (self._meter is not None or is_main_process()):
            self._report(RankStatus.ENDED)

    def _report_error(self, error: BaseException) -> None:
        if self._is_reported or not (self._meter is not None or is_main_process()):
            return
        self._is_reported = True
        self._rank, self._world_size = rank_report.identity()
        result = RankResult(
            rank=self._rank, world_size=self._world_size, status=RankStatus.RAISED, error=describe(error)
        )
        rank_report.write(self._paths, result, replace=False)

    def _report(self, status: RankStatus, *, is_converged: bool = False) -> None:
        self._is_reported = True
        meter = self._meter
        blocks = meter.blocks() if meter is not None else ()
        observed = {**self._applied.observed(), **_accumulation(blocks), **self._said}
        cuda = torch.cuda.is_initialized()
        result = RankResult(
            rank=self._rank,
            world_size=self._world_size,
            status=status,
            blocks=blocks,
            is_converged=is_converged,
            is_primed=self._is_primed(),
            compute_samples_per_second=meter.compute_samples_per_second if meter is not None else None,
            observed=observed,
            peak_allocated_bytes=torch.cuda.max_memory_allocated() if cuda else None,
            peak_reserved_bytes=torch.cuda.max_memory_reserved() if cuda else None,
            held_host_bytes=held_bytes(),
            num_alloc_retries=int(torch.cuda.memory_stats().get("num_alloc_retries", 0)) if cuda else 0,
            durations_s=self._durations(),
            first_losses=tuple(value for value in map(float, self._losses) if math.isfinite(value)),
            is_loss_finite=self._last_loss is None or bool(torch.isfinite(self._last_loss)),
            has_changed_parameters=self._has_trained(),
            num_steps=self._steps.num_steps,
            num_skipped_steps=self._steps.num_skipped,
        )
        rank_report.write(self._paths, result)

    def _is_primed(self) -> bool:
        loader = self._feed.loader
        has_queue = loader is not None and loader.num_workers > 0
        return has_queue and (self._feed.is_primed or not self._feed.has_gate)

    def _has_trained(self) -> bool:
        """Whether a watched parameter moved; a learning rate of 0 moves nothing, and that is the schedule's affair."""
        optimizer = self._steps.primary
        if optimizer is None or not self._watched or self._steps.num_steps < 2:
            return True
        if all(float(group.get("lr", 1.0)) == 0.0 for group in optimizer.param_groups):
            return True
        return any(not torch.equal(now, before) for now, before in self._watched)

    def _durations(self) -> dict[str, float]:
        """Seconds by part; the window's is the time until now."""
        began = [("start", self._started_at), ("preparation", self._attached_at)]
        if self._meter is not None:
            names = {Phase.WARMUP: "warm_up", Phase.COMPUTE: "compute", Phase.RAMP: "ramp", Phase.WINDOW: "window"}
            began += [(names[phase], at) for phase, at in self._meter.entered_at.items()]
        ends = [at for _, at in began[1:]] + [time.monotonic()]
        return {name: max(0.0, end - at) for (name, at), end in zip(began, ends, strict=True)}


def _accumulation(blocks: Iterable[Block]) -> dict[str, str]:
    """Micro-batches per optimizer step, as counted."""
    counted = [block for block in blocks if block.phase is Phase.WINDOW] or list(blocks)
    num_steps = sum(block.num_steps for block in counted)
    if num_steps == 0:
        return {}
    per_step = sum(block.num_micro_batches for block in counted) / num_steps
    return {"grad_accum_steps": str(round(per_step)) if abs(per_step - round(per_step)) < 0.05 else f"{per_step:.2f}"}


def is_main_process() -> bool:
    """Whether this is the process that was started as the script, and no worker or helper of it."""
    return multiprocessing.parent_process() is None


def report_endings(report_error: Callable[[BaseException], None], report_end: Callable[[], None]) -> None:
    """Calls back when the script ends: with its exception, or by itself."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, KeyboardInterrupt):
            report_error(error)
        previous(kind, error, trace)

    sys.excepthook = hook
    atexit.register(report_end)
