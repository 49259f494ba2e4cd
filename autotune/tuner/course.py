"""What is done in one study: probe, trials, finals, config."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from autotune.errors import ConfigError
from autotune.model.events import Event, Notice, ProbeFinished, ProbeStarted
from autotune.model.facts import ScriptFacts, samples_unit
from autotune.model.summary import SearchResult
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
from autotune.tuner.batch_probe import BatchGain, BatchProbe, describe
from autotune.tuner.budget import NUM_FINALISTS, Budget
from autotune.tuner.finals import Finals, FinalsResult
from autotune.tuner.fingerprint import (
    changed_code,
    check_unchanged,
    probed_fingerprint,
)
from autotune.tuner.jobs import Jobs
from autotune.tuner.loop import TrialLoop
from autotune.tuner.probing import probe_script
from autotune.tuner.publish import make_result, status_of, write_tuned_config
from autotune.tuner.site import Site
from autotune.tuner.stop import StopRequest
from autotune.tuner.take_over import check_can_be_taken_over, take_over
from autotune.tuner.together import wait_for_result
from autotune.tuner.trust import keep

OnEvent = Callable[[Event], None]


class Course:
    """One study from its probe, or from where an earlier run of it ended, to its published result.

    Args:
        study: The study, which is in the repository, and whose lease is this process's.
        site: Where its trials run.
        repository: Where it is stored.
        owner: Who holds the lease.
        budget: What the study may take.
        on_event: Told of everything.
        stop: May end it.
    """

    def __init__(
        self,
        study: StudyRecord,
        site: Site,
        repository: Repository,
        *,
        owner: Owner,
        budget: Budget,
        on_event: OnEvent,
        stop: StopRequest,
    ) -> None:
        self.study, self.site = study, site
        """As far as they are known: the probe tells more of both."""
        self._repository, self._owner, self._budget = repository, owner, budget
        self._on_event, self._stop = on_event, stop

    def run(self, workspace: Workspace) -> SearchResult:
        """Probe, trials, finals, config.

        Args:
            workspace: Where the study's trials write.

        Raises:
            InterruptedError: It was ended before there was anything to publish.
            AutotuneError: Whatever the user, the machine or the database caused.
        """
        facts = self._known_facts(workspace)
        space = derive_space(facts, self.site.machine, self.study.spec)
        jobs = Jobs(spec=self.study.spec, site=self.site, facts=facts, natural=space.natural)
        search = self._open_search(space)
        self._take_over(search)
        with ForkRunner(ColdRunner(workspace, self.site.device), facts) as runner:
            loop = TrialLoop(
                study=self.study.name,
                search=search,
                jobs=jobs,
                runner=runner,
                repository=self._repository,
                budget=self._budget,
                stop=self._stop,
                on_event=self._on_event,
                quiet=QuietWait(self.site.device, is_shared=self.study.spec.share_gpu),
            )
            loop.recover()
            reason = loop.run()
            while self._has_left_it_to_others():
                result = wait_for_result(self.study.name, self._repository, self._stop, self._on_event)
                if result is not None:
                    return result
                self._repository.acquire_lease(self.study.name, self._owner, now=datetime.now(UTC))
                reason = loop.run()
            gains = self._probe_larger_batches(search, loop, facts)
            finals = self._finals(search, loop)
        return self._publish(search, finals, reason, gains)

    def _has_left_it_to_others(self) -> bool:
        """Whether tuners of other machines go on; the last one measures the finals."""
        name = self.study.name
        return not self._stop.level and self._repository.leave_to_others(name, self._owner, now=datetime.now(UTC))

    def _take_over(self, search: Search) -> None:
        """Counts the trials of the older study that was named; those that fit only, and each once."""
        if not self.study.spec.take_over:
            return
        old = self._repository.study(self.study.spec.take_over)
        check_can_be_taken_over(old, self.study.fingerprint)
        num_taken, num_left = take_over(old, self.study.name, search, self._repository, self.site.cap_bytes)
        message = f"Taken over from study {old.name}: trials that fit {num_taken}, that do not {num_left}."
        self._on_event(Notice(message=message, is_warning=False))

    def _known_facts(self, workspace: Workspace) -> ScriptFacts:
        """What an earlier run of this study learned, or a new probe where there is none or its layer is gone."""
        if self.study.facts is not None and workspace.has_probe_layer():
            self._fit_site(self.study.facts)
            self._fingerprint(self.study.facts)
            return self.study.facts
        self._on_event(ProbeStarted())
        workspace.forget_probe()
        jobs = Jobs(spec=self.study.spec, site=self.site)
        before_s = self._budget.spent_s
        cold = ColdRunner(workspace, self.site.device)
        facts = probe_script(jobs, cold, workspace.probe_is_through, self._stop, self._on_event)
        self._fit_site(facts)
        space = derive_space(facts, self.site.machine, self.study.spec)
        self._repository.save_probe(
            self.study.name,
            facts=facts,
            natural=space.natural,
            refused=space.refused,
            memory_cap_bytes=self.site.cap_bytes,
            layer_folder=str(workspace.folder),
            fingerprint=self._fingerprint(facts),
        )
        stored, command = self._repository.study(self.study.name), self.study.spec.command
        self.study = replace(stored, spec=replace(stored.spec, command=command))  # It is stored without its secrets.
        keep(self.study)
        wall_s = self._budget.spent_s - before_s
        self._on_event(
            ProbeFinished(
                facts=facts,
                natural=space.natural,
                refused=space.refused,
                wall_s=wall_s,
                samples_unit=samples_unit(facts, self.study.spec.samples_per_step),
            )
        )
        return facts

    def _fingerprint(self, facts: ScriptFacts) -> dict[str, Any]:
        """The study's fingerprint with what the probe knows.

        Raises:
            UsageError: An earlier probe saw another script or space.
        """
        spec, stored = self.study.spec, self.study.fingerprint
        now = {**stored, **probed_fingerprint(spec, facts, derive_space(facts, self.site.machine, spec))}
        check_unchanged(self.study.name, stored, now)
        return now

    def _fit_site(self, facts: ScriptFacts) -> None:
        """A script that trains on the CPU is measured there, whatever devices there are."""
        self.site = self.site.where_it_trains(facts, self.study.spec, self._on_event).as_probed(facts)

    def _open_search(self, space: SearchSpace) -> Search:
        spec, facts = self.study.spec, self.study.facts
        return Search(
            self._repository.optuna_storage,
            self.study.name,
            space,
            PlanLimits(
                usable_cpus=self.site.usable_cpus,
                cap_bytes=self.site.cap_bytes,
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
            study=self.study.name,
            loop=loop,
            repository=self._repository,
            budget=self._budget,
            stop=self._stop,
            on_event=self._on_event,
            seed=self.study.spec.seed,
        )
        return finals.run(search.finalists(NUM_FINALISTS), search.baseline)

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
        self, search: Search, finals: FinalsResult | None, reason: str, gains: tuple[BatchGain, ...]
    ) -> SearchResult:
        trials = self._repository.trials(self.study.name)
        baseline = search.baseline
        is_stopped = bool(self._stop.level)
        status = status_of(finals=finals, baseline=baseline, trials=trials, is_stopped=is_stopped)
        result = make_result(
            study=self.study,
            site=self.site,
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
        if changes := changed_code(self.study.spec, self.study.fingerprint):
            note = f"The trials are not all of one script, since {'; '.join(changes)} meanwhile. Search again."
            result = replace(result, notes=(*result.notes, note))
        if finals is not None and result.best is not None and result.best.samples_per_second is not None:
            result = self._with_config(result)
        self._repository.set_status(self.study.name, status.value, result.document())
        return result

    def _with_config(self, result: SearchResult) -> SearchResult:
        """The result with the path of its config; a place that cannot be written costs the file, not the search."""
        try:
            path = write_tuned_config(self.study, self.site, result)
        except (ConfigError, OSError) as error:
            hint = f"Write it elsewhere with autotune export {self.study.name} --to yaml."
            return replace(result, notes=(*result.notes, f"The config could not be written: {error} {hint}"))
        return replace(result, config=str(path))
