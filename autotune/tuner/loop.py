"""The loop over trials: ask, run, record, tell; every trial is in the database before the next one begins."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from autotune.model.events import Event, TrialFinished, TrialStarted
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.plain import to_plain
from autotune.runner.protocol import Runner
from autotune.search.search import Proposal, Search, SearchExhausted
from autotune.settings import Settings
from autotune.store.records import Owner, TrialRecord
from autotune.store.repository import Repository
from autotune.store.secrets import allowed_environment
from autotune.tuner.budget import Budget
from autotune.tuner.jobs import Jobs
from autotune.tuner.stop import StopRequest, wait_for

RENEW_EVERY_S = 30.0


class TrialLoop:
    """Runs the trials of one study until the search, the budget or the user says that it is enough."""

    def __init__(
        self,
        *,
        study: str,
        search: Search,
        jobs: Jobs,
        runner: Runner,
        repository: Repository,
        budget: Budget,
        stop: StopRequest,
        on_event: Callable[[Event], None],
    ) -> None:
        self._study, self._search, self._jobs, self._runner = study, search, jobs, runner
        self._repository, self._budget, self._stop, self._on_event = repository, budget, stop, on_event
        self._owner = Owner.this_process()
        self._renewed_at = time.monotonic()

    def recover(self) -> None:
        """Finishes what a killed tuner left half done: told twice is never, run twice is only what was interrupted."""
        for record in self._repository.trials(self._study):
            if not record.optuna_told:
                self._search.tell(record.number, record.result)
                self._repository.mark_told(self._study, record.number)
            if record.result.outcome.is_finished:
                self._budget.trial_took(record.result.wall_s)
        self._search.reap(self._is_dead)

    def run(self) -> str:
        """Runs trials; why it stopped, as one sentence."""
        while not self._stop.level:
            if not self._budget.allows_trial():
                return "The time is spent, but for the finals."
            proposal = self._search.ask({"owner": to_plain(self._owner)})
            if isinstance(proposal, SearchExhausted):
                return proposal.reason
            self._trial(proposal)
            if self._is_hopeless(proposal):
                return "The script's own settings cannot be measured."
        return "It was asked to stop."

    def measure(self, settings: Settings, *, is_final: bool) -> TrialResult:
        """Runs the script once under these settings."""
        job = self._jobs.trial(settings, incumbent=self._incumbent(), is_final=is_final)
        handle = self._runner.start(job)
        wait_for(handle, self._stop, now_and_then=self._renew)
        return handle.result()

    def _trial(self, proposal: Proposal) -> None:
        self._on_event(TrialStarted(number=proposal.number, settings=proposal.settings, stage=proposal.stage))
        started_at = datetime.now(UTC)
        best_before = self._incumbent()
        result = self.measure(proposal.settings, is_final=False)
        if result.outcome in (Outcome.CRASHED, Outcome.TIMED_OUT):
            result = self._again(proposal.settings, result)
        record = TrialRecord(
            number=proposal.number,
            settings=proposal.settings,
            stage=proposal.stage,
            result=result,
            started_at=started_at,
            finished_at=datetime.now(UTC),
            environment=allowed_environment(os.environ),
            optuna_told=False,
        )
        self._repository.record_trial(self._study, record)
        # An interruption that nobody here asked for is the host's: queued again, but not for ever.
        self._search.tell(proposal.number, result, is_host_fault=not self._stop.level)
        self._repository.mark_told(self._study, proposal.number)
        self._repository.add_spent(self._study, self._budget.unsaved_s())
        self._budget.trial_took(result.wall_s)
        rate = result.measurement.samples_per_second if result.measurement else 0.0
        is_best = result.outcome is Outcome.OK and rate > (best_before or 0.0)
        self._on_event(
            TrialFinished(
                number=proposal.number,
                settings=proposal.settings,
                stage=proposal.stage,
                result=result,
                is_best=is_best,
            )
        )

    def _again(self, settings: Settings, first: TrialResult) -> TrialResult:
        """A crash is the settings' doing only when it happens twice."""
        if self._stop.level:
            return first
        second = self.measure(settings, is_final=False)
        return replace(second, notes=(*second.notes, f"A first run ended {first.outcome}: {first.reason}"))

    def _incumbent(self) -> float | None:
        best = self._search.history.best
        return best.samples_per_second if best is not None else None

    def _is_hopeless(self, proposal: Proposal) -> bool:
        """Whether the baseline, which everything is compared with, failed for another reason than memory."""
        baseline = self._search.history.baseline
        return baseline is not None and baseline.number == proposal.number and baseline.outcome.is_failed

    def _is_dead(self, attributes: dict[str, object]) -> bool:
        """Whether the tuner that began a trial is gone: this one holds the study's lease, so every other one is."""
        return bool(attributes.get("owner") != to_plain(self._owner))

    def _renew(self) -> None:
        if time.monotonic() - self._renewed_at >= RENEW_EVERY_S:
            self._renewed_at = time.monotonic()
            self._repository.renew_lease(self._study, self._owner, now=datetime.now(UTC))
