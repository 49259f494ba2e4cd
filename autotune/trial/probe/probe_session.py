"""The probe in this process: changes only the cap on memory, or splits the batch to learn how the loss is reduced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from autotune.model.result import RankResult, RankStatus
from autotune.protocol.job import Mode, TrialJob
from autotune.protocol.paths import TrialPaths
from autotune.protocol.progress_marks import Mark
from autotune.settings import Group, Settings, Value
from autotune.trial.apply.applied import AppliedSettings
from autotune.trial.loader.loaders import Loaders
from autotune.trial.meter.host_memory import HostValidationWatch
from autotune.trial.meter.rank_sync import Agreement, Progress
from autotune.trial.probe.script_detector import NUM_STEPS, ScriptDetector
from autotune.trial.report import rank_report
from autotune.trial.report.failure import describe
from autotune.trial.step.roots import Roots
from autotune.trial.step.steps import StepPolicy, Steps
from autotune.trial.torch import torch_names
from autotune.trial.torch.allocator import AllocatorWatch, ValidationWatch, limit_share


class ProbeSession:
    """A probe: from the import of torch to the facts."""

    def __init__(self, job: TrialJob, paths: TrialPaths, started_at: float) -> None:
        self._job, self._paths = job, paths
        self._applied = AppliedSettings(job) if job.mode is Mode.SPLIT_PROBE else None
        self._loaders = self._applied.loaders if self._applied else Loaders()
        self._steps = self._applied.steps if self._applied else Steps()
        self._roots = self._applied.roots if self._applied else Roots()
        num_steps = NUM_STEPS if self._applied is None else 1
        self._detector = ScriptDetector(
            loaders=self._loaders, steps=self._steps, roots=self._roots, started_at=started_at, num_steps=num_steps
        )
        self._allocator = AllocatorWatch()
        self._validation, self._host_validation = ValidationWatch(), HostValidationWatch()
        self._progress = Progress(paths.progress)
        self._agreement: Agreement | None = None
        self._is_reported = False
        self._stands_down = False

    def install(self) -> None:
        """Attaches to torch, and to all ways of the script to end."""
        if self._applied is None and self._job.cap_fraction < 1.0:
            # The only change: on a shared device the cap must hold from the first run on.
            limit_share(self._job.cap_fraction)
        self._detector.attach()
        if self._job.samples_per_step is None:
            self._steps.counts_evaluations = lambda: not self._detector.has_batches
        if self._applied is not None:
            self._applied.install()
            self._steps.policy = self._noting(self._steps.policy)
        else:
            self._loaders.install()
            self._allocator.install()
            self._roots.on_any_call = self._called
            self._steps.on_backward += [self._validation.trains, self._host_validation.trains]
            self._steps.on_step.append(self._host_validation.stepped)
            self._roots.install()
            self._steps.policy = self._noting(None)
            self._steps.install()
        self._steps.on_step.append(self._stepped)
        self._steps.on_backward.append(self._backward)
        rank_report.EndWatch(self._report_error, self._report_end).install()

    def stand_down(self) -> None:
        """Leaves the report to the session of Keras: from here on Keras trains, on torch or on another engine."""
        self._stands_down = self._is_reported = True

    @property
    def settings(self) -> Settings | None:
        """A probe runs under the defaults of the script's call."""
        return None

    def claim(self, group: Group) -> None:
        """Notes that the script applies this group itself."""
        self._detector.claims.add(group)

    def declare_knobs(self, defaults: Mapping[str, str]) -> None:
        """Notes the script's knobs."""
        self._detector.knobs.update(defaults)

    def observe(self, field: str, value: Value) -> None:
        """Does nothing: a probe compares no settings."""

    def _noting(self, policy: StepPolicy | None) -> StepPolicy:
        """The policy, with the gradients noted before their use."""

        def noting(optimizer: torch.optim.Optimizer, call: Callable[[], Any]) -> tuple[Any, bool]:
            def noted() -> Any:
                self._detector.grad_norm_before(optimizer)
                return call()

            return policy(optimizer, noted) if policy is not None else (noted(), True)

        return noting

    def _stepped(self, optimizer: torch.optim.Optimizer | None) -> None:
        if optimizer is not self._steps.primary or self._stands_down:
            return
        num_steps = self._steps.num_steps
        self._progress.put(Mark.STEPS, num_steps)
        if self._agreement is None:
            self._agreement = Agreement(self._progress, *rank_report.identity())
        if self._agreement.reached(Mark.STOP, wanted=self._detector.has_seen_enough, num_steps=num_steps, since=0):
            self._finish()

    def _called(self, with_gradients: bool) -> None:
        self._detector.batch_uses.end_looking()
        self._validation.called(with_gradients)
        self._host_validation.called(with_gradients)
        self._detector.called(with_gradients)

    def _backward(self, _: torch.Tensor | None) -> None:
        """Ends the probe of a script that updates its parameters by hand, and so never steps an optimizer."""
        if not self._steps.num_steps and not self._stands_down and self._detector.has_seen_enough:
            self._progress.put(Mark.STEPS, self._steps.num_backwards)
            self._finish()

    def _finish(self) -> None:
        world_size = self._report(RankStatus.PROBED)
        rank_report.wait_for_others(self._paths, world_size)
        rank_report.end_process()

    def _report_end(self) -> None:
        if not self._is_reported and (rank_report.is_main_process() or self._steps.num_backwards):
            self._report(RankStatus.PROBED if self._steps.num_backwards else RankStatus.ENDED)

    def _report(self, status: RankStatus) -> int:
        self._is_reported = True
        rank, world_size = rank_report.identity()
        on_host, allocated = self._host_validation.found(), self._allocator.figures()
        result = RankResult(
            rank=rank,
            world_size=world_size,
            status=status,
            first_losses=tuple(self._detector.first_losses),
            num_steps=self._steps.num_steps,
            facts=replace(
                self._detector.facts(world_size),
                peak_allocated_bytes=allocated.get("peak_allocated_bytes"),
                workspace_bytes=torch_names.free_workspaces(),
                validation_bytes=self._validation.peak_bytes(),
                validation_host_bytes=on_host.peak_bytes if on_host is not None else None,
                validation_host_growth_bytes=on_host.growth_bytes if on_host is not None else None,
            ),
            empty_loaders=self._detector.empty_loaders(),
            **allocated,
        )
        rank_report.write(self._paths, result, is_bystander=not self._steps.num_backwards)
        return world_size

    def _report_error(self, error: BaseException) -> None:
        if self._is_reported or not (rank_report.is_main_process() or self._steps.num_backwards):
            return
        self._is_reported = True
        rank, world_size = rank_report.identity()
        result = RankResult(rank=rank, world_size=world_size, status=RankStatus.RAISED, error=describe(error))
        rank_report.write(self._paths, result, is_bystander=not self._steps.num_backwards)
