"""Opens a study in this process: the lease, the workspace, and the state left behind."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from autotune.errors import AutotuneError, StoreError
from autotune.model.events import Notice, OnEvent, SearchStarted
from autotune.model.search_result import SearchResult, Status
from autotune.protocol.protection import SENTENCES, Protection
from autotune.runner.open_runner import RunnerFactory
from autotune.runner.opened_workspace import open_workspace
from autotune.sandbox.workspace import Workspace
from autotune.spec import SearchSpec
from autotune.store.records import Owner
from autotune.store.url import mask_url
from autotune.study.budget import Budget
from autotune.study.limits import keeps_gain
from autotune.study.protection_record import wish_of
from autotune.study.publish import interrupted_result
from autotune.study.removal import workspace_id
from autotune.study.stop import StopRequest
from autotune.study.stored_study import StoredStudy
from autotune.study.study import Study


class OpenStudy:
    """A study searched by this process, under the lease of this process.

    Args:
        stored: The study.
        on_event: Receives every event.
        stop: Ends the study early.
        open_runner: Builds the runners of the probe and of the trials.
        new_spec: The study's request with other limits, to be stored; None = as stored.
    """

    def __init__(
        self,
        stored: StoredStudy,
        *,
        on_event: OnEvent,
        stop: StopRequest,
        open_runner: RunnerFactory,
        new_spec: SearchSpec | None = None,
    ) -> None:
        self._before, self._new_spec = stored.record, new_spec
        if new_spec is not None:
            stored.record = replace(stored.record, spec=new_spec)
        self._stored, self._repository, self._on_event = stored, stored.repository, on_event
        self._name, self._spec = stored.name, stored.spec
        self._owner = Owner.this_process()
        keeps_builds = not stored.target.device.is_cpu
        self._budget = Budget(stored.spec.budget_s, stored.record.spent_s, keeps_builds=keeps_builds)
        self._study = Study(
            stored, owner=self._owner, budget=self._budget, on_event=on_event, stop=stop, open_runner=open_runner
        )

    def run(self) -> SearchResult:
        """Runs the study under the lease, and removes the workspace unless a resume needs it."""
        self._repository.acquire_lease(self._name, self._owner, now=datetime.now(UTC))
        try:
            if self._new_spec is not None:
                self._stored.reopen(self._new_spec)
            workspace, is_over = self._open_workspace(), False
            try:
                result = self._run_in(workspace)
                if keeps_gain(self._before, result.status):
                    self._keep_gain(result.status)
                # A resume needs nothing but the probe's layer.
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
        """Whether the error leaves a study without facts, whose name becomes free again."""
        is_of_study = isinstance(error, AutotuneError) and not isinstance(error, StoreError)
        return self._stored.record.facts is None and is_of_study

    def _leave_after(self, error: BaseException) -> None:
        if isinstance(error, StoreError):
            return  # The database is out of reach; another process takes over the lease of a dead one.
        with suppress(StoreError):
            if self._is_of_no_use(error):
                self._repository.delete_study(self._name)
            else:
                if isinstance(error, KeyboardInterrupt):
                    self._repository.set_status(self._name, Status.INTERRUPTED.value, self._before.result)
                elif self._new_spec is not None:  # An error has no result of its own.
                    self._repository.set_status(self._name, self._before.status, self._before.result)
                self._leave()

    def _keep_gain(self, status: Status) -> None:
        """Puts back the result from before this run; a resume goes on where the run was interrupted."""
        before = self._before.result
        assert before is not None
        kept = status.value if status is Status.INTERRUPTED else before["status"]
        self._repository.set_status(self._name, kept, before)

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
        if workspace.is_cut_off:
            message = "Trials after the probe run without a network; --network lets them use yours."
            self._on_event(Notice(message=message, is_warning=False))
        if not workspace.has_layers:
            words = SENTENCES[workspace.protection]
            is_warning = workspace.protection is Protection.NONE
            self._on_event(Notice(message=f"Protection of your files: {words}.", is_warning=is_warning))
        return workspace

    def _interrupted_before_trials(self) -> SearchResult:
        self._repository.set_status(self._name, Status.INTERRUPTED.value)
        return interrupted_result(self._stored.record, self._stored.target, wall_s=self._budget.spent_s)

    def _say_started(self) -> None:
        spec, host = self._spec, self._stored.target.host
        finished = [t for t in self._repository.trials(self._name) if t.result.outcome.is_finished]
        self._on_event(
            SearchStarted(
                study=self._name,
                script=spec.script,
                machine=f"{host.device}, {host.usable_cpus:g} usable cores, torch {host.torch}",
                memory_cap_bytes=self._stored.target.cap_bytes,
                max_trials=spec.max_trials,
                budget_s=spec.budget_s,
                num_finished=len(finished),
                storage=mask_url(self._repository.url),
                cwd=spec.cwd,
                spent_s=self._stored.record.spent_s,
            )
        )
