"""Runs a study: probe, trials, finals, config."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune.errors import ConfigError
from autotune.model.events import Event, Notice, ProbeFinished, ProbeStarted
from autotune.model.facts import ScriptFacts, samples_unit
from autotune.model.maps import all_maps, mapped_settings
from autotune.model.result import TrialResult
from autotune.model.search_result import SearchResult, Status
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.fork_runner import ForkRunner
from autotune.runner.quiet_wait import QuietWait
from autotune.sandbox.workspace import Workspace
from autotune.search.history import FinishedTrial, History
from autotune.search.plan_state import TRAINED_BYTES, PlanLimits
from autotune.search.study_search import Search
from autotune.space.derive import derive_space
from autotune.space.offers import useful_arguments
from autotune.space.refusals import why_no_split
from autotune.space.script_settings import with_readings
from autotune.space.search_space import SearchSpace
from autotune.store.records import Owner, StudyRecord
from autotune.store.repository import Repository
from autotune.study.budget import NUM_FINALISTS, Budget
from autotune.study.correction import Correction, correction_of
from autotune.study.finals import Finals, FinalsResult
from autotune.study.fingerprint import changed_code, check_unchanged, probed_fingerprint
from autotune.study.jobs import Jobs
from autotune.study.larger_batches import BatchGain, BatchProbe, describe
from autotune.study.probing import WITHOUT_OUTPUTS, probe_script
from autotune.study.publish import make_result, status_of, write_tuned_config
from autotune.study.stop import StopRequest
from autotune.study.take_over import check_can_be_taken_over, take_over
from autotune.study.target import Target
from autotune.study.together import wait_for_result
from autotune.study.trial_loop import LoopEnd, TrialLoop
from autotune.study.trust_record import keep

OnEvent = Callable[[Event], None]


class Study:
    """Runs one study from the probe, or from the end of an earlier run, to the published result.

    Args:
        study: The study, present in the repository, with the lease held by this process.
        target: Place in which the trials run.
        repository: Place in which the study is stored.
        owner: Holder of the lease.
        budget: Time that the study may take.
        on_event: Receives every event.
        stop: Ends the study early.
    """

    def __init__(
        self,
        study: StudyRecord,
        target: Target,
        repository: Repository,
        *,
        owner: Owner,
        budget: Budget,
        on_event: OnEvent,
        stop: StopRequest,
    ) -> None:
        self.study, self.target = study, target
        """Study and site as far as known; the probe adds to both."""
        self._repository, self._owner, self._budget = repository, owner, budget
        self._on_event, self._stop = on_event, stop

    def run(self, workspace: Workspace) -> SearchResult:
        """Runs the probe, the trials and the finals, and writes the config.

        Args:
            workspace: Folder written by the study's trials.

        Raises:
            InterruptedError: The study was ended before anything could be published.
            AutotuneError: The user, the machine or the database caused an error.
        """
        facts = self._known_facts(workspace)
        space = derive_space(facts, self.target.machine, self.study.spec)
        jobs = Jobs(spec=self.study.spec, target=self.target, facts=facts, script_settings=space.script_settings)
        search = self._open_search(space)
        self._take_over(search)
        with ForkRunner(ColdRunner(workspace, self.target.device), facts) as runner:
            loop = TrialLoop(
                study=self.study.name,
                search=search,
                jobs=jobs,
                runner=runner,
                repository=self._repository,
                budget=self._budget,
                stop=self._stop,
                on_event=self._on_event,
                quiet=QuietWait(self.target.device, is_shared=self.study.spec.share_gpu),
                correct=self._correct,
                start_afresh=lambda: self._start_afresh(workspace, runner),
            )
            loop.recover()
            end = loop.run()
            while self._has_left_it_to_others():
                result = wait_for_result(self.study.name, self._repository, self._stop, self._on_event)
                if result is not None:
                    return result
                self._repository.acquire_lease(self.study.name, self._owner, now=datetime.now(UTC))
                end = loop.run()
            gains = self._probe_larger_batches(search, loop, self.study.facts or facts)
            finals = self._finals(search, loop, end)
        return self._publish(search, finals, end, gains)

    def _correct(self, result: TrialResult, jobs: Jobs) -> Correction | None:
        """Corrects the facts by the baseline's run, and stores the correction before any trial relies on it."""
        correction = correction_of(result, jobs)
        if correction is not None:
            spec, facts, space = self.study.spec, correction.facts, correction.space
            fingerprint = {**self.study.fingerprint, **probed_fingerprint(spec, facts, space)}
            self._save(facts, space, fingerprint, self.study.layer_folder)
        return correction

    def _save(self, facts: ScriptFacts, space: SearchSpace, fingerprint: dict[str, Any], layer_folder: str) -> None:
        self._repository.save_probe(
            self.study.name,
            facts=facts,
            script_settings=space.script_settings,
            refused=space.refused,
            memory_cap_bytes=self.target.cap_bytes,
            layer_folder=layer_folder,
            fingerprint=fingerprint,
        )
        stored, command = self._repository.study(self.study.name), self.study.spec.command
        self.study = replace(stored, spec=replace(stored.spec, command=command))  # The stored command has no secrets.
        keep(self.study)

    def _with_known_readings(self, facts: ScriptFacts) -> ScriptFacts:
        """A new probe's facts with readings from an earlier baseline, of this study or of the study taken over."""
        before = self.study.facts
        if before is None and self.study.spec.take_over:
            before = self._repository.study(self.study.spec.take_over).facts
        return with_readings(facts, dict(before.baseline_readings)) if before is not None else facts

    def _start_afresh(self, workspace: Workspace, runner: ForkRunner) -> bool:
        """Lets trials start without what the probe wrote, caches excepted; whether that makes a difference."""
        runner.close()  # What it holds was started in the layers that change.
        is_changed = workspace.keep_only_caches()
        if is_changed:
            self._on_event(Notice(message=WITHOUT_OUTPUTS))
        return is_changed

    def _has_left_it_to_others(self) -> bool:
        """Whether tuners on other machines continue the study; the last tuner to end measures the finals."""
        name = self.study.name
        return not self._stop.level and self._repository.leave_to_others(name, self._owner, now=datetime.now(UTC))

    def _take_over(self, search: Search) -> None:
        """Counts the trials of the older study named by the user, only trials that fit, and each trial once."""
        if not self.study.spec.take_over:
            return
        old = self._repository.study(self.study.spec.take_over)
        check_can_be_taken_over(old, self.study.fingerprint)
        num_taken, num_left = take_over(old, self.study.name, search, self._repository, self.target.cap_bytes)
        message = f"Taken over from study {old.name}: trials that fit {num_taken}, that do not {num_left}."
        self._on_event(Notice(message=message, is_warning=False))

    def _known_facts(self, workspace: Workspace) -> ScriptFacts:
        """Facts from an earlier run of this study; a new probe's facts when none exist or the layer is gone."""
        if self.study.facts is not None and workspace.has_probe_layer():
            self._fit_target(self.study.facts)
            self._fingerprint(self.study.facts)
            return self.study.facts
        self._on_event(ProbeStarted())
        workspace.forget_probe()
        jobs = Jobs(spec=self.study.spec, target=self.target)
        before_s = self._budget.spent_s
        # A study with an earlier probe may have spent all its time on trials, and only wait for the finals.
        limit_s = self._budget.left_s if self.study.facts is None else self._budget.total_s
        cold = ColdRunner(workspace, self.target.device)
        facts = probe_script(
            jobs,
            cold,
            workspace.probe_is_through,
            self._stop,
            self._on_event,
            ends_by=time.monotonic() + limit_s,
            learn_folders=lambda printed: workspace.learn_folders(printed, Path(self.study.spec.cwd)),
            keep_only_caches=workspace.keep_only_caches,
        )
        facts = self._with_known_readings(facts)
        self._fit_target(facts)
        space = derive_space(facts, self.target.machine, self.study.spec)
        self._save(facts, space, self._fingerprint(facts), str(workspace.folder))
        wall_s = self._budget.spent_s - before_s
        self._on_event(
            ProbeFinished(
                facts=facts,
                natural=space.script_settings,
                refused=space.refused,
                wall_s=wall_s,
                samples_unit=samples_unit(facts, self.study.spec.samples_per_step),
                arguments=useful_arguments(facts, self.target.machine, self.study.spec),
            )
        )
        return facts

    def _fingerprint(self, facts: ScriptFacts) -> dict[str, Any]:
        """The study's fingerprint with the facts of the probe.

        Raises:
            UsageError: An earlier probe saw a different script or space.
        """
        spec, stored = self.study.spec, self.study.fingerprint
        now = {**stored, **probed_fingerprint(spec, facts, derive_space(facts, self.target.machine, spec))}
        check_unchanged(self.study.name, stored, now)
        return now

    def _fit_target(self, facts: ScriptFacts) -> None:
        """Measures a script on the CPU when the script trains there, whatever devices the machine has."""
        self.target = self.target.where_it_trains(facts, self.study.spec, self._on_event).as_probed(facts)

    def _open_search(self, space: SearchSpace) -> Search:
        spec, facts = self.study.spec, self.study.facts
        return Search(
            self._repository.optuna_storage,
            self.study.name,
            space,
            PlanLimits(
                usable_cpus=self.target.usable_cpus,
                cap_bytes=self.target.cap_bytes,
                fixed_bytes=TRAINED_BYTES * facts.num_parameters if facts is not None else 0.0,
            ),
            seed=spec.seed,
            max_trials=spec.trials_limit,
            spend_all=spec.max_trials is not None,
        )

    def _finals(self, search: Search, loop: TrialLoop, end: LoopEnd) -> FinalsResult | None:
        if self._stop.level:
            return None
        finalists = search.finalists(NUM_FINALISTS)
        finals = Finals(
            study=self.study.name,
            loop=loop,
            repository=self._repository,
            budget=self._budget,
            stop=self._stop,
            on_event=self._on_event,
            seed=self.study.spec.seed,
        )
        result = finals.run(finalists, search.baseline, self._unselected(search, finalists))
        if result is not None and end.is_limit and _num_others(search.history.sound, search.history) == 0:
            return replace(result, is_compared=False)
        return result

    def _unselected(self, search: Search, finalists: Sequence[FinishedTrial]) -> dict[int, TrialResult]:
        """Results of the finalists' own trials; empty when the finalists were chosen among several trials.

        A baseline without a rival counts as not chosen: its trial has a rate, and further runs would compare nothing.
        """
        if finalists and _num_others(search.history.feasible, search.history) > 1:
            return {}
        numbers = {trial.number for trial in (*finalists, search.baseline) if trial is not None}
        trials = self._repository.trials(self.study.name)
        return {trial.number: trial.result for trial in trials if trial.number in numbers}

    def _probe_larger_batches(self, search: Search, loop: TrialLoop, facts: ScriptFacts) -> tuple[BatchGain, ...]:
        probe = BatchProbe(
            spec=self.study.spec,
            facts=facts,
            budget=self._budget,
            fits=search.fits,
            compute_rate=loop.compute_rate,
            is_stopped=lambda: bool(self._stop.level),
        )
        return probe.run(search.history.best, search.num_finished)

    def _publish(
        self, search: Search, finals: FinalsResult | None, end: LoopEnd, gains: tuple[BatchGain, ...]
    ) -> SearchResult:
        trials = self._repository.trials(self.study.name)
        baseline = search.baseline
        is_stopped = bool(self._stop.level)
        status = status_of(finals=finals, baseline=baseline, trials=trials, is_stopped=is_stopped)
        result = make_result(
            study=self.study,
            target=self.target,
            status=status,
            trials=trials,
            history=search.history,
            num_gated=search.num_gated,
            finals=finals,
            wall_s=self._budget.spent_s,
            reason=f"{end.reason} {finals.shortened}".strip() if finals is not None else end.reason,
        )
        if status is Status.TOO_SHORT:
            result = replace(result, notes=(*result.notes, self._how_much_is_enough(search.history)))
        if gain := describe(gains, can_search=not self._why_no_other_batch()):
            result = replace(result, notes=(*result.notes, gain))
        if changes := changed_code(self.study.spec, self.study.fingerprint):
            note = f"The trials ran several versions of the script, since {'; '.join(changes)} meanwhile. Search again."
            result = replace(result, notes=(*result.notes, note))
        if finals is not None and result.best is not None and result.best.samples_per_second is not None:
            result = self._with_config(result)
        self._repository.set_status(self.study.name, status.value, result.document())
        return result

    def _why_no_other_batch(self) -> str:
        """Why no search may choose the effective batch of this script; empty when a search may choose."""
        spec, facts = self.study.spec, self.study.facts
        assert facts is not None
        mapped = mapped_settings(all_maps(spec.maps, facts))
        return why_no_split(facts, splits_batch_norm=spec.allow_batchnorm_accumulation, mapped=mapped)

    def _how_much_is_enough(self, history: History) -> str:
        has_rival = _num_others(history.feasible, history) > 0
        enough_s = max(self._budget.enough_s(has_rival=has_rival), self._budget.total_s)
        minutes = math.ceil(enough_s / 30) / 2
        trials = ", and --trials 10 or more" if self.study.spec.max_trials is not None else ""
        return f"About --time {minutes:g}m is enough to compare one other setting with yours{trials}."

    def _with_config(self, result: SearchResult) -> SearchResult:
        """The result with the path of the written config; a failed write adds a note, and the search still counts."""
        try:
            path = write_tuned_config(self.study, self.target, result)
        except (ConfigError, OSError) as error:
            hint = f"Write it elsewhere with autotune export {self.study.name} --to yaml."
            return replace(result, notes=(*result.notes, f"The config could not be written: {error} {hint}"))
        return replace(result, config=str(path))


def _num_others(trials: Sequence[FinishedTrial], history: History) -> int:
    """Number of trials with settings different from the script's own."""
    return sum(trial.settings != history.script_settings for trial in trials)
