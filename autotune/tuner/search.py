"""A search from beginning to end: open, probe, trials, finals, config. `resume` goes on with a stored one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from autotune.errors import ConfigError, UsageError
from autotune.model.events import Event, Notice, ProbeFinished, ProbeStarted, SearchStarted
from autotune.model.facts import ScriptFacts
from autotune.model.summary import SearchResult, Status
from autotune.runner.cold import ColdRunner
from autotune.runner.workspace import Workspace
from autotune.search.search import Search
from autotune.search.walk import PlanLimits
from autotune.space.derive import derive_space
from autotune.space.space import SearchSpace
from autotune.spec import SearchSpec
from autotune.store.records import Owner, StudyRecord
from autotune.store.repository import Repository
from autotune.store.url import mask_url, network_file_system, resolve_url
from autotune.tuner.budget import NUM_FINALISTS, Budget
from autotune.tuner.finals import Finals, FinalsResult
from autotune.tuner.jobs import Jobs
from autotune.tuner.loop import TrialLoop
from autotune.tuner.probing import probe_script
from autotune.tuner.publish import check_config_path, count_trials, make_result, status_of, write_tuned_config
from autotune.tuner.site import Site, open_site, study_fingerprint, what_changed
from autotune.tuner.stop import StopRequest

OnEvent = Callable[[Event], None]


def search(spec: SearchSpec, *, on_event: OnEvent, stop: StopRequest | None = None) -> SearchResult:
    """Searches as asked, from a new study to the tuned config.

    Raises:
        StudyExistsError: There is a study of that name already.
        AutotuneError: Whatever the user, the machine or the database caused; its exit code says which.
    """
    site = open_site(spec)
    with _open_repository(spec.storage, Path(spec.cwd), on_event) as repository:
        study = StudyRecord(
            name=spec.study,
            spec=spec,
            fingerprint=study_fingerprint(spec, site),
            created_at=datetime.now(UTC),
            memory_cap_bytes=site.cap_bytes,
        )
        check_config_path(study)
        repository.create_study(study)
        return _Search(study, site, repository, on_event, stop or StopRequest()).run()


def resume(study: str, *, storage: str, cwd: Path, on_event: OnEvent, stop: StopRequest | None = None) -> SearchResult:
    """Goes on with a stored study, under its own budget; a finished one gives its result again.

    Raises:
        StudyNotFoundError: There is no such study.
        StudyExistsError: Another tuner is searching it.
        UsageError: Its script, its command or the machine has changed.
    """
    with _open_repository(storage, cwd, on_event, must_exist=True) as repository:
        record = repository.study(study)
        if record.status not in ("running", Status.INTERRUPTED.value) and record.result is not None:
            return SearchResult.from_document(record.result)
        site = open_site(record.spec)
        site = site if record.memory_cap_bytes is None else replace(site, cap_bytes=record.memory_cap_bytes)
        changes = what_changed(record.fingerprint, study_fingerprint(record.spec, site))
        if changes and record.facts is not None and record.facts.device == "cpu" and not site.device.is_cpu:
            site = site.on_cpu(record.spec)
            changes = what_changed(record.fingerprint, study_fingerprint(record.spec, site))
        if changes:
            raise UsageError(
                f"Study {study!r} cannot go on, because its trials would not be comparable: {'; '.join(changes)}.",
                "Start a new study with autotune search --study NAME.",
            )
        return _Search(record, site, repository, on_event, stop or StopRequest()).run()


def _open_repository(storage: str, cwd: Path, on_event: OnEvent, *, must_exist: bool = False) -> Repository:
    url = resolve_url(storage, cwd)
    file_system = network_file_system(url)
    if file_system is not None:
        on_event(Notice(message=f"The database {mask_url(url)} lies on {file_system}, where SQLite may lose data."))
    return Repository.open(url, must_exist=must_exist)


class _Search:
    """One study being searched by this process, under its lease."""

    def __init__(
        self, study: StudyRecord, site: Site, repository: Repository, on_event: OnEvent, stop: StopRequest
    ) -> None:
        self._study, self._site, self._repository = study, site, repository
        self._on_event, self._stop = on_event, stop
        self._owner = Owner.this_process()
        self._budget = Budget(study.spec.budget_s, study.spent_s)

    def run(self) -> SearchResult:
        """Probe, trials, finals, config."""
        name = self._study.name
        self._repository.acquire_lease(name, self._owner, now=datetime.now(UTC))
        workspace = self._open_workspace()
        try:
            self._say_started()
            result = self._run(workspace)
        except InterruptedError:
            result = self._interrupted_before_trials()
        finally:
            self._repository.add_spent(name, self._budget.unsaved_s())
            self._repository.release_lease(name, self._owner)
        if result.status is not Status.INTERRUPTED:
            workspace.remove()
        return result

    def _run(self, workspace: Workspace) -> SearchResult:
        facts = self._known_facts(workspace)
        space = derive_space(facts, self._site.machine, self._study.spec)
        jobs = Jobs(spec=self._study.spec, site=self._site, facts=facts, natural=space.natural)
        search = self._open_search(space)
        loop = TrialLoop(
            study=self._study.name,
            search=search,
            jobs=jobs,
            runner=ColdRunner(workspace, self._site.device),
            repository=self._repository,
            budget=self._budget,
            stop=self._stop,
            on_event=self._on_event,
        )
        loop.recover()
        reason = loop.run()
        return self._publish(search, self._finals(search, loop), reason)

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
            return self._study.facts
        self._on_event(ProbeStarted())
        workspace.forget_probe()
        jobs = Jobs(spec=self._study.spec, site=self._site)
        before_s = self._budget.spent_s
        facts = probe_script(jobs, ColdRunner(workspace, self._site.device), workspace.probe_is_through, self._stop)
        self._fit_site(facts)
        space = derive_space(facts, self._site.machine, self._study.spec)
        self._repository.save_probe(
            self._study.name,
            facts=facts,
            natural=space.natural,
            refused=space.refused,
            memory_cap_bytes=self._site.cap_bytes,
            layer_folder=str(workspace.folder),
        )
        self._study = self._repository.study(self._study.name)
        wall_s = self._budget.spent_s - before_s
        self._on_event(ProbeFinished(facts=facts, natural=space.natural, refused=space.refused, wall_s=wall_s))
        return facts

    def _fit_site(self, facts: ScriptFacts) -> None:
        """A script that trains on the CPU is measured there, whatever devices there are."""
        if facts.device == "cpu" and not self._site.device.is_cpu:
            self._site = self._site.on_cpu(self._study.spec)
            self._on_event(Notice(message="The script trains on the CPU, although there is a CUDA device."))

    def _open_search(self, space: SearchSpace) -> Search:
        spec = self._study.spec
        return Search(
            self._repository.optuna_storage,
            self._study.name,
            space,
            PlanLimits(usable_cpus=self._site.usable_cpus, cap_bytes=self._site.cap_bytes),
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

    def _publish(self, search: Search, finals: FinalsResult | None, reason: str) -> SearchResult:
        trials = self._repository.trials(self._study.name)
        baseline = search.baseline
        is_stopped = bool(self._stop.level)
        status = status_of(finals=finals, baseline=baseline, trials=trials, is_stopped=is_stopped)
        result = make_result(
            study=self._study,
            site=self._site,
            status=status,
            trials=trials,
            num_gated=search.num_gated,
            best=search.history.best,
            baseline=baseline,
            finals=finals,
            wall_s=self._budget.spent_s,
            reason=reason,
        )
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
        return SearchResult(
            study=self._study.name,
            status=Status.INTERRUPTED,
            baseline=None,
            best=None,
            speedup=None,
            bottleneck="unknown",
            bottleneck_after="unknown",
            data_wait_fraction=None,
            ceiling_samples_per_second=None,
            trials=count_trials((), 0),
            memory_cap_bytes=self._site.cap_bytes,
            wall_s=self._budget.spent_s,
            measuring_s=0.0,
            config=None,
            reason="It was asked to stop.",
        )

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
            )
        )
