"""Makes the job for settings: command, environment and limits."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace

from autotune.measure.window_stopping import FINALS_HALF_WIDTH_RATIO, SCREENING_HALF_WIDTH_RATIO, WindowRule
from autotune.model.facts import LossReduction, ScriptFacts
from autotune.model.maps import all_maps, mapped_arguments, mapped_settings, target_of
from autotune.protocol.environment import with_engine
from autotune.protocol.job import MeasurementRequest, Mode, TrialJob
from autotune.settings import LOADER_FIELDS, SETTINGS, Settings, variables_of
from autotune.space.refusals import why_not_unedited
from autotune.spec import SearchSpec
from autotune.study.run_times import LEAST_FINAL_WINDOW_S
from autotune.study.target import Target

PROBE_START_LIMIT_S = 900.0
"""Longest time to a probe's first step, in seconds: a probe may download the dataset."""
PROBE_STEPS_LIMIT_S = 300.0
"""Longest time from a probe's first step to the end, in seconds."""
START_SLACK_S = 60.0
START_FACTOR = 5.0
"""Longest time to a trial's first step, relative to the probe's, plus START_SLACK_S and what the settings build."""
TOTAL_SLACK_S = 60.0
STEPS_IN_TRIAL = 150
"""Most optimizer steps of a trial, at a few times the duration of the baseline's steps."""
WINDOW_S = 8.0
STEPS_IN_WINDOW = 12
"""Least length of a window of long steps, in steps."""
FINAL_WINDOW_FACTOR = 1.5
LOOK_WINDOW_S = 3.0
"""Longest window of a look at the winner's memory, in seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Jobs:
    """Makes the jobs of one study."""

    spec: SearchSpec
    target: Target
    facts: ScriptFacts | None = None
    script_settings: Settings | None = None
    own_skipped_share: float | None = None
    """Share of optimizer steps skipped under the script's own settings; None before these were measured."""

    @property
    def maps(self) -> tuple[tuple[str, str], ...]:
        """Settings set through the script's own arguments."""
        return all_maps(self.spec.maps, self.facts)

    def _maps_of(self, settings: Settings, *, serves: bool) -> tuple[tuple[str, str], ...]:
        """The maps of one trial.

        A process reads arguments once. In a process with several trials autotune changes the loader directly where this
        is sound. Arguments that the user asks for by --map are always used, and so are all arguments in finals.
        """
        if not serves or self.facts is None or self.script_settings is None:
            return self.maps
        refused = why_not_unedited(settings, self.script_settings, self.facts)
        changed_directly = set(LOADER_FIELDS) - refused.keys() - mapped_settings(self.spec.maps)
        return tuple(pair for pair in self.maps if target_of(*pair)[0] not in changed_directly)

    @property
    def is_live(self) -> bool:
        """Whether a process goes on with other settings after a trial; a process of Keras never does."""
        if self.facts is not None and self.facts.keras is not None:
            return False
        if self.spec.start == "auto":
            return not self.target.device.is_cpu
        return self.spec.start == "live"

    def probe(self) -> TrialJob:
        """The job of the unchanged script."""
        start_limit_s = min(PROBE_START_LIMIT_S, self.spec.budget_s)
        return self._job(
            mode=Mode.PROBE,
            command=self.spec.command,
            settings=None,
            start_limit_s=start_limit_s,
            total_limit_s=start_limit_s + PROBE_STEPS_LIMIT_S,
        )

    def split_probe(self, settings: Settings) -> TrialJob:
        """The job of one step with the batch in parts, for a loss with a mean."""
        assert self.facts is not None
        facts = replace(self.facts, loss_reduction=LossReduction.MEAN)
        return replace(self.trial(settings), mode=Mode.SPLIT_PROBE, facts=facts, serves=False)

    def trial(
        self,
        settings: Settings,
        *,
        incumbent: float | None = None,
        is_final: bool = False,
        is_shared: bool = False,
        window_limit_s: float = math.inf,
    ) -> TrialJob:
        """The job of a measurement; finals measure longer and never race.

        Args:
            settings: Settings to measure.
            incumbent: Best rate so far, in samples per second.
            is_final: Whether to measure longer, and never to race.
            is_shared: Whether a final may run in a process of trials, which shows no growth of memory after its window.
            window_limit_s: Longest window for which there is time, in seconds; half of the usual steps are measured in
                any case.
        """
        assert self.facts is not None and self.script_settings is not None
        builds_s = sum(setting.longest_build_s(settings) for setting in SETTINGS)
        start_limit_s = START_SLACK_S + START_FACTOR * self.facts.first_step_s + builds_s
        serves = self.is_live and (is_shared or not is_final)
        maps = self._maps_of(settings, serves=serves)
        arguments = mapped_arguments(settings, self.script_settings, maps)
        job = self._job(
            mode=Mode.TRIAL,
            maps=maps,
            command=(*self.spec.command, *arguments),
            settings=settings,
            environment=tuple(with_engine(variables_of(settings, os.environ, self.script_settings)).items()),
            window=self._window(is_final=is_final, limit_s=window_limit_s),
            incumbent=None if is_final else incumbent,
            start_limit_s=start_limit_s,
            total_limit_s=start_limit_s + TOTAL_SLACK_S + STEPS_IN_TRIAL * self.facts.step_s,
            serves=serves,
        )
        return replace(job, request=replace(job.request, looks_at_growth=is_final and not is_shared))

    def batch_probe(self, settings: Settings, factor: int) -> TrialJob:
        """The job of a compute-only rate with a batch `factor` times as large."""
        job = self.trial(settings)
        limit_s = job.start_limit_s + factor * (job.total_limit_s - job.start_limit_s)
        return replace(job, request=replace(job.request, batch_probe_factor=factor), total_limit_s=limit_s)

    def look(self, settings: Settings, limit_bytes: int) -> TrialJob:
        """The job of a short measurement under a limit of the caching allocator; the cap's share limits in any case."""
        total_bytes = self.target.device.total_bytes
        # In whole bytes: the guard's own bytes, as a share again, may lie just below the guard.
        is_guard = limit_bytes >= int(self.target.cap_fraction * total_bytes)
        job = self.trial(settings if is_guard else replace(settings, memory_fraction=limit_bytes / total_bytes))
        window = replace(job.request.window, max_window_s=min(LOOK_WINDOW_S, job.request.window.max_window_s))
        return replace(job, request=replace(job.request, window=window))

    def _facts_of_trials(self) -> ScriptFacts | None:
        """The facts for trials: the script's question for the number of devices gets the number shown to a trial."""
        facts, shown = self.facts, self.target.devices
        known = facts.cuda_devices if facts is not None else None
        if facts is None or known is None or not shown or known.asked_for != ",".join(self.target.probe_devices):
            return facts
        return replace(facts, cuda_devices=replace(known, asked_for=",".join(shown), num_devices=len(shown)))

    def _window(self, *, is_final: bool, limit_s: float = math.inf) -> WindowRule:
        step_s = self.facts.step_s if self.facts is not None else 0.0
        longest_s = max(WINDOW_S, STEPS_IN_WINDOW * step_s)
        least_s = max(LEAST_FINAL_WINDOW_S, STEPS_IN_WINDOW / 2 * step_s)
        if is_final:
            return WindowRule(
                half_width_ratio=FINALS_HALF_WIDTH_RATIO,
                max_window_s=min(FINAL_WINDOW_FACTOR * longest_s, max(limit_s, least_s)),
                min_window_s=LEAST_FINAL_WINDOW_S,
            )
        return WindowRule(
            half_width_ratio=SCREENING_HALF_WIDTH_RATIO, max_window_s=min(longest_s, max(limit_s, least_s))
        )

    def _job(
        self,
        *,
        mode: Mode,
        command: tuple[str, ...],
        settings: Settings | None,
        start_limit_s: float,
        total_limit_s: float,
        maps: tuple[tuple[str, str], ...] | None = None,
        serves: bool = False,
        environment: tuple[tuple[str, str], ...] = (),
        window: WindowRule | None = None,
        incumbent: float | None = None,
    ) -> TrialJob:
        request = MeasurementRequest(
            settings=settings,
            window=window or self._window(is_final=False),
            seed=self.spec.seed,
            incumbent_samples_per_second=incumbent,
        )
        return TrialJob(
            request=request,
            mode=mode,
            command=command,
            cwd=self.spec.cwd,
            script_settings=self.script_settings,
            facts=self._facts_of_trials(),
            mapped=tuple(sorted(mapped_settings(self.maps if maps is None else maps))),
            environment=environment,
            device=self.target.device.kind,
            devices=self.target.probe_devices if mode is Mode.PROBE else self.target.devices,
            world_size=self.spec.num_processes_per_node,
            cap_bytes=self.target.cap_bytes,
            cap_fraction=self.target.cap_fraction,
            host_cap_bytes=self.target.host_cap_bytes,
            outside_allocator_bytes=self.facts.outside_allocator_bytes if self.facts is not None else None,
            own_skipped_share=self.own_skipped_share,
            samples_per_step=self.spec.samples_per_step,
            start_limit_s=start_limit_s,
            total_limit_s=total_limit_s,
            serves=serves,
        )
