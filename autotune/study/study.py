"""Runs a study: probe, plan, trials, finals, publish."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

from autotune.errors import StudyNotFoundError
from autotune.model.events import Notice, OnEvent
from autotune.model.facts import ScriptFacts
from autotune.model.memory_share import MemoryShare
from autotune.model.search_result import SearchResult
from autotune.runner.cold_runner import ColdRunner
from autotune.runner.open_runner import RunnerFactory
from autotune.runner.probe_runner import ProbeRunner
from autotune.runner.quiet_wait import QuietWait
from autotune.runner.runner import Runner
from autotune.sandbox.workspace import Workspace
from autotune.search.plan_state import TRAINED_BYTES, PlanLimits
from autotune.search.search_stopping import is_untried
from autotune.search.study_search import Search
from autotune.settings.loader_group import num_loaders
from autotune.space.search_space import SearchSpace
from autotune.store.records import Owner
from autotune.study.budget import MOST_FINALISTS, Budget
from autotune.study.estimate import fixed_bytes
from autotune.study.final_choice import FinalsResult
from autotune.study.finals import Finals
from autotune.study.jobs import Jobs
from autotune.study.larger_batches import BatchGain, BatchProbe
from autotune.study.probing import Probed, probe, start_afresh
from autotune.study.publish import publish
from autotune.study.second_look import SecondLooks
from autotune.study.smallest_share import ShareSearch
from autotune.study.stop import StopRequest
from autotune.study.stored_study import StoredStudy
from autotune.study.take_over import check_can_be_taken_over, take_over
from autotune.study.together import wait_for_result
from autotune.study.trial_loop import LoopEnd, TrialLoop
from autotune.study.trial_rounds import results_of_trials, results_without_choice


class Study:
    """Runs one study from the probe, or from the end of an earlier run, to the published result.

    Args:
        stored: The study, with the lease held by this process.
        owner: Holder of the lease.
        budget: Time that the study may take.
        on_event: Receives every event.
        stop: Ends the study early.
        open_runner: Builds the runners of the probe and of the trials.
    """

    def __init__(
        self,
        stored: StoredStudy,
        *,
        owner: Owner,
        budget: Budget,
        on_event: OnEvent,
        stop: StopRequest,
        open_runner: RunnerFactory,
    ) -> None:
        self._stored, self._repository, self._owner = stored, stored.repository, owner
        self._budget, self._on_event, self._stop, self._open_runner = budget, on_event, stop, open_runner

    def run(self, workspace: Workspace) -> SearchResult:
        """Runs the probe, the trials and the finals, and writes the config.

        Args:
            workspace: Folder written by the study's trials.

        Raises:
            InterruptedError: The study was ended before anything could be published.
            AutotuneError: The user, the machine or the database caused an error.
        """
        facts, space, runner = self._probe(workspace)
        with closing(runner):
            search = self._plan(space)
            looks = SecondLooks(
                self._stored.name,
                search=search,
                repository=self._repository,
                budget=self._budget,
                stop=self._stop,
            )
            looks.resume()
            loop = self._loop(facts, space, search, runner, workspace)
            end = self._trials(loop)
            if isinstance(end, SearchResult):
                return end
            gains = self._probe_larger_batches(search, loop)
            end, finals = looks.finals(loop, end, lambda end: self._finals(search, loop, end))
            memory = self._memory(finals, loop, space)
        return self._publish(search, finals, end, gains, memory)

    def _probe(self, workspace: Workspace) -> tuple[ScriptFacts, SearchSpace, Runner]:
        """Facts, space, and the runner of the trials.

        Facts and space are from an earlier run; from a new probe when there are none, or the probe's files are gone.
        """
        stored, known = self._stored, self._stored.record.facts
        if known is not None and workspace.has_probe_layer():
            space = stored.go_on(known, self._on_event)
            return known, space, self._open_runner(workspace, stored.target.device, known)
        # A study with an earlier probe may have spent all the time on trials, with the finals still to come.
        limit_s = self._budget.left_s if known is None else self._budget.total_s
        ends_by, runner = time.monotonic() + limit_s, self._open_runner(workspace, stored.target.device)
        if isinstance(runner, ColdRunner):
            with closing(ProbeRunner(runner, stored.target.devices)) as first:
                probed = self._new_probe(workspace, first, ends_by)
                return probed.facts, probed.space, first.for_trials(probed.facts, stored.target.device)
        probed = self._new_probe(workspace, runner, ends_by)
        return probed.facts, probed.space, self._open_runner(workspace, stored.target.device, probed.facts)

    def _new_probe(self, workspace: Workspace, runner: Runner, ends_by: float) -> Probed:
        """The result of a new probe, with the facts of an earlier probe in their place."""
        stored, is_known, before_s = self._stored, self._stored.record.facts is not None, self._budget.spent_s
        probed = probe(stored.spec, stored.target, workspace, runner, self._stop, self._on_event, ends_by=ends_by)
        self._budget.probe_s = self._budget.spent_s - before_s
        if is_known:
            workspace.connect()  # Whether earlier trials needed the network went with the earlier workspace.
        probed = stored.save_probe(probed, str(workspace.folder))
        self._on_event(probed.event)
        return probed

    def _plan(self, space: SearchSpace) -> Search:
        """The search, with the trials taken over from the older study named by the user."""
        spec, target, facts = self._stored.spec, self._stored.target, self._stored.record.facts
        search = Search(
            self._repository.optuna_storage,
            self._stored.name,
            space,
            PlanLimits(
                usable_cpus=target.usable_cpus / (facts.world_size if facts is not None else 1),
                cap_bytes=target.cap_bytes,
                num_loaders=num_loaders(facts) if facts is not None else 1,
                fixed_bytes=TRAINED_BYTES * facts.num_parameters if facts is not None else 0.0,
                fixed_estimate_bytes=fixed_bytes(facts, target.outside_allocator_bytes) if facts is not None else None,
                reachable_bytes=target.reachable_bytes,
                has_bf16_instructions=target.has_bf16_instructions,
            ),
            seed=spec.seed,
            max_trials=spec.trials_limit,
            spend_all=spec.is_spent_in_full,
        )
        if spec.take_over:
            self._take_over(search)
        return search

    def _take_over(self, search: Search) -> None:
        """Adds the fitting trials of the older study named by the user; a resume goes on without a deleted one."""
        name = self._stored.spec.take_over
        try:
            old = self._repository.study(name)
        except StudyNotFoundError:
            self._on_event(Notice(message=f"Study {name} is gone: of its trials, those taken over before count."))
            return
        check_can_be_taken_over(old, self._stored.record.fingerprint)
        cap_bytes = self._stored.target.cap_bytes
        num_taken, num_left = take_over(old, self._stored.name, search, self._repository, cap_bytes)
        message = f"Taken over from study {old.name}: trials that fit {num_taken}, that do not {num_left}."
        self._on_event(Notice(message=message, is_warning=False))

    def _loop(
        self, facts: ScriptFacts, space: SearchSpace, search: Search, runner: Runner, workspace: Workspace
    ) -> TrialLoop:
        stored = self._stored
        return TrialLoop(
            study=stored.name,
            search=search,
            jobs=Jobs(spec=stored.spec, target=stored.target, facts=facts, script_settings=space.script_settings),
            runner=runner,
            repository=self._repository,
            budget=self._budget,
            stop=self._stop,
            on_event=self._on_event,
            quiet=QuietWait(stored.target.device, is_shared=stored.spec.share_gpu),
            correct=stored.correct,
            start_afresh=lambda: self._start_afresh(workspace, runner),
        )

    def _start_afresh(self, workspace: Workspace, runner: Runner) -> bool:
        """Lets the next trial start like the probe; returns whether that makes a difference."""
        runner.close()  # Processes kept by the runner see the files that go.
        return start_afresh(workspace, self._on_event)

    def _trials(self, loop: TrialLoop) -> LoopEnd | SearchResult:
        """Runs the trials; the last of several tuners gets the end of its trials, and all others the result."""
        loop.recover()
        end = loop.run()
        while self._has_left_it_to_others():
            result = wait_for_result(self._stored.name, self._repository, self._stop, self._on_event)
            if result is not None:
                return result
            self._repository.acquire_lease(self._stored.name, self._owner, now=datetime.now(UTC))
            end = loop.run()
        return end

    def _has_left_it_to_others(self) -> bool:
        """Whether tuners on other machines continue the study; the last tuner to end measures the finals."""
        name = self._stored.name
        return not self._stop.level and self._repository.leave_to_others(name, self._owner, now=datetime.now(UTC))

    def _probe_larger_batches(self, search: Search, loop: TrialLoop) -> tuple[BatchGain, ...]:
        facts = self._stored.record.facts
        assert facts is not None
        batches = BatchProbe(
            spec=self._stored.spec,
            facts=facts,
            budget=self._budget,
            fits=search.fits,
            compute_rate=loop.measuring.compute_rate,
            is_stopped=lambda: bool(self._stop.level) or loop.has_spent_its_time,
        )
        return batches.run(search.history.best, search.num_finished)

    def _finals(self, search: Search, loop: TrialLoop, end: LoopEnd) -> FinalsResult | None:
        if self._stop.level:
            return None
        history, finalists = search.history, search.finalists(MOST_FINALISTS)
        finals = Finals(
            study=self._stored.name,
            measuring=loop.measuring,
            repository=self._repository,
            budget=self._budget,
            stop=self._stop,
            on_event=self._on_event,
            seed=self._stored.spec.seed,
        )
        chosen = results_of_trials(history, finalists, self._repository.trials(self._stored.name))
        trials = results_without_choice(history, finalists, chosen)
        result = finals.run(finalists, search.baseline, trials, chosen)
        if result is not None and end.is_limit and is_untried(history):
            return replace(result, is_compared=False)
        return result

    def _memory(self, finals: FinalsResult | None, loop: TrialLoop, space: SearchSpace) -> MemoryShare | None:
        facts, spec = self._stored.record.facts, self._stored.spec
        assert facts is not None
        shares = ShareSearch(
            target=self._stored.target,
            facts=facts,
            budget=self._budget,
            measure=loop.measuring.look,
            is_stopped=lambda: bool(self._stop.level),
            is_live=loop.measuring.is_live,
            spec=spec,
            space=space,
        )
        return shares.run(finals)

    def _publish(
        self,
        search: Search,
        finals: FinalsResult | None,
        end: LoopEnd,
        gains: tuple[BatchGain, ...],
        memory: MemoryShare | None,
    ) -> SearchResult:
        result = publish(
            study=self._stored.record,
            target=self._stored.target,
            trials=self._repository.trials(self._stored.name),
            history=search.history,
            num_gated=search.num_gated,
            finals=finals,
            gains=gains,
            memory=memory,
            budget=self._budget,
            end_reason=end.reason,
            is_limit=end.is_limit,
            is_stopped=bool(self._stop.level),
        )
        self._repository.set_status(self._stored.name, result.status.value, result.document())
        return result
