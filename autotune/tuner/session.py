"""One study being searched by this process: workspace, probe, trials, finals, config, and how it is left."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune.errors import AutotuneError, ConfigError, StoreError
from autotune.model.events import Event, Notice, ProbeFinished, ProbeStarted, SearchStarted
from autotune.model.facts import ScriptFacts
from autotune.model.summary import SearchResult, Status
from autotune.runner.cold import ColdRunner
from autotune.runner.forked import ForkRunner
from autotune.runner.quiet import QuietWait
from autotune.runner.workspace import Workspace
from autotune.search.search import Search
from autotune.search.walk import TRAINED_BYTES, PlanLimits
from autotune.space.derive import derive_space
from autotune.space.space import SearchSpace
from autotune.store.records import Owner, StudyRecord
from autotune.store.repository import Repository
from autotune.store.url import mask_url
from autotune.tuner.batch_probe import BatchGain, BatchProbe, describe
from autotune.tuner.budget import NUM_FINALISTS, Budget
from autotune.tuner.finals import Finals, FinalsResult
from autotune.tuner.fingerprint import (
    check_unchanged,
    probed_fingerprint,
)
from autotune.tuner.jobs import Jobs
from autotune.tuner.loop import TrialLoop
from autotune.tuner.probing import probe_script
from autotune.tuner.publish import interrupted_result, make_result, status_of, write_tuned_config
from autotune.tuner.site import Site
from autotune.tuner.stop import StopRequest
from autotune.tuner.take_over import check_can_be_taken_over, take_over
from autotune.tuner.together import wait_for_result

OnEvent = Callable[[Event], None]


class Session:
    """One study being searched by this process, under its lease.

    Args:
        study: The study, which is in the repository.
        site: Where its trials run.
        repository: Where it is stored.
        on_event: Told of everything.
        stop: May end it.
    """

    def __init__(
        self, study: StudyRecord, site: Site, repository: Repository, on_event: OnEvent, stop: StopRequest
    ) -> None:
        self._study, self._site, self._repository = study, site, repository
        self._on_event, self._stop = on_event, stop
        self._owner = Owner.this_process()
        self._budget = Budget(study.spec.budget_s, study.spent_s)

    def run(self) -> SearchResult:
        """Probe, trials, finals, config."""
        self._repository.acquire_lease(self._study.name, self._owner, now=datetime.now(UTC))
        try:
            workspace, is_over = self._open_workspace(), False
            try:
                result = self._run_in(workspace)
                is_over = result.status is not Status.INTERRUPTED
            except AutotuneError as error:
                is_over = self._is_of_no_use(error)
                raise
            finally:
                if is_over:
                    workspace.remove()
                workspace.leave()
        except BaseException as error:
            self._leave_after(error)
            raise
        self._leave()
        return result

    def _run_in(self, workspace: Workspace) -> SearchResult:
        self._say_started()
        try:
            return self._run(workspace)
        except InterruptedError:
            return self._interrupted_before_trials()

    def _is_of_no_use(self, error: BaseException) -> bool:
        """Whether the study has taught nothing, and cannot: its name is free again then."""
        return self._study.facts is None and isinstance(error, AutotuneError) and not isinstance(error, StoreError)

    def _leave_after(self, error: BaseException) -> None:
        if isinstance(error, StoreError):
            return  # Nothing else could be written; the lease of the dead is taken over.
        with suppress(StoreError):
            if self._is_of_no_use(error):
                self._repository.delete_study(self._study.name)
            else:
                self._leave()

    def _leave(self) -> None:
        self._repository.add_spent(self._study.name, self._budget.unsaved_s())
        self._repository.release_lease(self._study.name, self._owner)

    def _run(self, workspace: Workspace) -> SearchResult:
        facts = self._known_facts(workspace)
        space = derive_space(facts, self._site.machine, self._study.spec)
        jobs = Jobs(spec=self._study.spec, site=self._site, facts=facts, natural=space.natural)
        search = self._open_search(space)
        self._take_over(search)
        with ForkRunner(ColdRunner(workspace, self._site.device), facts) as runner:
            loop = TrialLoop(
                study=self._study.name,
                search=search,
                jobs=jobs,
                runner=runner,
                repository=self._repository,
                budget=self._budget,
                stop=self._stop,
                on_event=self._on_event,
                quiet=QuietWait(self._site.device, is_shared=self._study.spec.share_gpu),
            )
            loop.recover()
            reason = loop.run()
            while self._has_left_it_to_others():
                result = wait_for_result(self._study.name, self._repository, self._stop, self._on_event)
                if result is not None:
                    return result
                self._repository.acquire_lease(self._study.name, self._owner, now=datetime.now(UTC))
                reason = loop.run()
            gains = self._probe_larger_batches(search, loop, facts)
            finals = self._finals(search, loop)
        return self._publish(search, finals, reason, gains)

    def _has_left_it_to_others(self) -> bool:
        """Whether tuners of other machines go on; the last one measures the finals."""
        name = self._study.name
        return not self._stop.level and self._repository.leave_to_others(name, self._owner, now=datetime.now(UTC))

    def _take_over(self, search: Search) -> None:
        """Counts the trials of the older study that was named; those that fit only, and each once."""
        if not self._study.spec.take_over:
            return
        old = self._repository.study(self._study.spec.take_over)
        check_can_be_taken_over(old, self._study.fingerprint)
        num_taken, num_left = take_over(old, self._study.name, search, self._repository, self._site.cap_bytes)
        message = f"Taken over from study {old.name}: trials that fit {num_taken}, that do not {num_left}."
        self._on_event(Notice(message=message))

    def _open_workspace(self) -> Workspace:
        spec = self._study.spec
        folder = Path(self._study.layer_folder) if self._study.layer_folder else None
        study_id = f"{self._repository.url} {self._study.name}"
        workspace = Workspace.open(folder, cwd=Path(spec.cwd), command=spec.command, study_id=study_id)
        workspace.remove_leftovers()
        if not workspace.has_layers:
            message = "This system permits no overlay mounts: what trials write is redirected, which scripts can evade."
            self._on_event(Notice(message=message))
        return workspace

    def _known_facts(self, workspace: Workspace) -> ScriptFacts:
        """What an earlier run of this study learned, or a new probe where there is none or its layer is gone."""
        if self._study.facts is not None and workspace.has_probe_layer():
            self._fit_site(self._study.facts)
            self._fingerprint(self._study.facts)
            return self._study.facts
        self._on_event(ProbeStarted())
        workspace.forget_probe()
        jobs = Jobs(spec=self._study.spec, site=self._site)
        before_s = self._budget.spent_s
        cold = ColdRunner(workspace, self._site.device)
        facts = probe_script(jobs, cold, workspace.probe_is_through, self._stop, self._on_event)
        self._fit_site(facts)
        space = derive_space(facts, self._site.machine, self._study.spec)
        self._repository.save_probe(
            self._study.name,
            facts=facts,
            natural=space.natural,
            refused=space.refused,
            memory_cap_bytes=self._site.cap_bytes,
            layer_folder=str(workspace.folder),
            fingerprint=self._fingerprint(facts),
        )
        self._study = self._repository.study(self._study.name)
        wall_s = self._budget.spent_s - before_s
        self._on_event(ProbeFinished(facts=facts, natural=space.natural, refused=space.refused, wall_s=wall_s))
        return facts

    def _fingerprint(self, facts: ScriptFacts) -> dict[str, Any]:
        """The study's fingerprint with what the probe knows.

        Raises:
            UsageError: An earlier probe saw another script or space.
        """
        spec, stored = self._study.spec, self._study.fingerprint
        now = {**stored, **probed_fingerprint(spec, facts, derive_space(facts, self._site.machine, spec))}
        check_unchanged(self._study.name, stored, now)
        return now

    def _fit_site(self, facts: ScriptFacts) -> None:
        """A script that trains on the CPU is measured there, whatever devices there are."""
        if facts.device == "cpu" and not self._site.device.is_cpu:
            self._site = self._site.on_cpu(self._study.spec)
            self._on_event(Notice(message="The script trains on the CPU, although there is a CUDA device."))
        self._site = self._site.as_probed(facts)

    def _open_search(self, space: SearchSpace) -> Search:
        spec, facts = self._study.spec, self._study.facts
        return Search(
            self._repository.optuna_storage,
            self._study.name,
            space,
            PlanLimits(
                usable_cpus=self._site.usable_cpus,
                cap_bytes=self._site.cap_bytes,
                fixed_bytes=TRAINED_BYTES * facts.num_parameters if facts is not None else 0.0,
            ),
            seed=spec.seed,
            max_trials=spec.trials_limit,
            spend_all=spec.max_trials is not None,
        )

    def _finals(self, search: Search, loop: TrialLoop) -> FinalsResult | None:
        if self._stop.level:
            return None
        finals = Finals(
            study=self._study.name,
            loop=loop,
            repository=self._repository,
            budget=self._budget,
            stop=self._stop,
            on_event=self._on_event,
            seed=self._study.spec.seed,
        )
        return finals.run(search.finalists(NUM_FINALISTS), search.baseline)

    def _probe_larger_batches(self, search: Search, loop: TrialLoop, facts: ScriptFacts) -> tuple[BatchGain, ...]:
        probe = BatchProbe(
            spec=self._study.spec,
            facts=facts,
            budget=self._budget,
            fits=search.fits,
            compute_rate=loop.compute_rate,
            is_stopped=lambda: bool(self._stop.level),
        )
        return probe.run(search.history.best, search.num_finished)

    def _publish(
        self, search: Search, finals: FinalsResult | None, reason: str, gains: tuple[BatchGain, ...]
    ) -> SearchResult:
        trials = self._repository.trials(self._study.name)
        baseline = search.baseline
        is_stopped = bool(self._stop.level)
        status = status_of(finals=finals, baseline=baseline, trials=trials, is_stopped=is_stopped)
        result = make_result(
            study=self._study,
            site=self._site,
            status=status,
            trials=trials,
            history=search.history,
            num_gated=search.num_gated,
            finals=finals,
            wall_s=self._budget.spent_s,
            reason=f"{reason} {finals.shortened}".strip() if finals is not None else reason,
        )
        if gain := describe(gains):
            result = replace(result, notes=(*result.notes, gain))
        if finals is not None and result.best is not None and result.best.samples_per_second is not None:
            result = self._with_config(result)
        self._repository.set_status(self._study.name, status.value, result.document())
        return result

    def _with_config(self, result: SearchResult) -> SearchResult:
        """The result with the path of its config; a place that cannot be written costs the file, not the search."""
        try:
            path = write_tuned_config(self._study, self._site, result)
        except (ConfigError, OSError) as error:
            hint = f"Write it elsewhere with autotune export {self._study.name} --to yaml."
            return replace(result, notes=(*result.notes, f"The config could not be written: {error} {hint}"))
        return replace(result, config=str(path))

    def _interrupted_before_trials(self) -> SearchResult:
        self._repository.set_status(self._study.name, Status.INTERRUPTED.value)
        return interrupted_result(self._study, self._site, wall_s=self._budget.spent_s)

    def _say_started(self) -> None:
        spec, host = self._study.spec, self._site.host
        finished = [t for t in self._repository.trials(self._study.name) if t.result.outcome.is_finished]
        self._on_event(
            SearchStarted(
                study=self._study.name,
                script=spec.script,
                machine=f"{host.device}, {host.usable_cpus:g} usable cores, torch {host.torch}",
                memory_cap_bytes=self._site.cap_bytes,
                max_trials=spec.trials_limit,
                budget_s=spec.budget_s,
                num_finished=len(finished),
                storage=mask_url(self._repository.url),
                cwd=spec.cwd,
                spent_s=self._study.spent_s,
            )
        )
