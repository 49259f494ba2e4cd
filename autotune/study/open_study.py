"""One study being searched by this process: its lease, its workspace, and how it is left."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from autotune.errors import AutotuneError, StoreError
from autotune.model.events import Notice, SearchStarted
from autotune.model.search_result import SearchResult, Status
from autotune.protocol.protection import SENTENCES, Protection
from autotune.runner.opened_workspace import open_workspace
from autotune.sandbox.workspace import Workspace
from autotune.store.records import Owner, StudyRecord
from autotune.store.repository import Repository
from autotune.store.url import mask_url
from autotune.study.budget import Budget
from autotune.study.protection_record import wish_of
from autotune.study.publish import interrupted_result
from autotune.study.removal import workspace_id
from autotune.study.stop import StopRequest
from autotune.study.study import OnEvent, Study
from autotune.study.target import Target


class OpenStudy:
    """One study being searched by this process, under its lease.

    Args:
        study: The study, which is in the repository.
        target: Where its trials run.
        repository: Where it is stored.
        on_event: Told of everything.
        stop: May end it.
    """

    def __init__(
        self, study: StudyRecord, target: Target, repository: Repository, on_event: OnEvent, stop: StopRequest
    ) -> None:
        self._repository, self._on_event = repository, on_event
        self._name, self._spec = study.name, study.spec
        self._owner = Owner.this_process()
        self._budget = Budget(study.spec.budget_s, study.spent_s)
        self._study = Study(
            study, target, repository, owner=self._owner, budget=self._budget, on_event=on_event, stop=stop
        )

    def run(self) -> SearchResult:
        """Probe, trials, finals, config."""
        self._repository.acquire_lease(self._name, self._owner, now=datetime.now(UTC))
        try:
            workspace, is_over = self._open_workspace(), False
            try:
                result = self._run_in(workspace)
                # Without the probe's layer there is nothing in it that a resume would miss.
                is_over = result.status is not Status.INTERRUPTED or not workspace.has_probe_layer()
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
            return self._study.run(workspace)
        except InterruptedError:
            return self._interrupted_before_trials()

    def _is_of_no_use(self, error: BaseException) -> bool:
        """Whether the study has taught nothing, and cannot: its name is free again then."""
        return (
            self._study.study.facts is None and isinstance(error, AutotuneError) and not isinstance(error, StoreError)
        )

    def _leave_after(self, error: BaseException) -> None:
        if isinstance(error, StoreError):
            return  # Nothing else could be written; the lease of the dead is taken over.
        with suppress(StoreError):
            if self._is_of_no_use(error):
                self._repository.delete_study(self._name)
            else:
                if isinstance(error, KeyboardInterrupt):
                    self._repository.set_status(self._name, Status.INTERRUPTED.value)
                self._leave()

    def _leave(self) -> None:
        self._repository.add_spent(self._name, self._budget.unsaved_s())
        self._repository.release_lease(self._name, self._owner)

    def _open_workspace(self) -> Workspace:
        spec = self._spec
        study_id = workspace_id(self._name, self._repository)
        workspace = open_workspace(cwd=Path(spec.cwd), command=spec.command, study_id=study_id, wish=wish_of(spec))
        workspace.remove_leftovers()
        if spec.writable:
            message = f"Trials write to these for real, as asked for (writable): {', '.join(spec.writable)}."
            self._on_event(Notice(message=message))
        if not workspace.has_layers:
            words = SENTENCES[workspace.protection]
            is_warning = workspace.protection is Protection.NONE
            self._on_event(Notice(message=f"Protection of your files: {words}.", is_warning=is_warning))
        return workspace

    def _interrupted_before_trials(self) -> SearchResult:
        self._repository.set_status(self._name, Status.INTERRUPTED.value)
        return interrupted_result(self._study.study, self._study.target, wall_s=self._budget.spent_s)

    def _say_started(self) -> None:
        spec, host = self._spec, self._study.target.host
        finished = [t for t in self._repository.trials(self._name) if t.result.outcome.is_finished]
        self._on_event(
            SearchStarted(
                study=self._name,
                script=spec.script,
                machine=f"{host.device}, {host.usable_cpus:g} usable cores, torch {host.torch}",
                memory_cap_bytes=self._study.target.cap_bytes,
                max_trials=spec.trials_limit,
                budget_s=spec.budget_s,
                num_finished=len(finished),
                storage=mask_url(self._repository.url),
                cwd=spec.cwd,
                spent_s=self._study.study.spent_s,
            )
        )
