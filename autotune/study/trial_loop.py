"""Runs the loop over trials: ask, run, record, tell; every trial is in the database before the next trial begins."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache

from autotune.errors import StoreError
from autotune.model.events import Notice, OnEvent, TrialFinished, TrialStarted
from autotune.model.outcome import Outcome
from autotune.model.result import STARTUP, SWITCH, TrialResult
from autotune.model.trial_records import TrialRecord
from autotune.protocol.codec import to_plain
from autotune.runner.quiet_wait import QuietWait
from autotune.runner.runner import Runner
from autotune.search.forecast import scatters
from autotune.search.history import FinishedTrial, History
from autotune.search.prices import Prices
from autotune.search.search_stopping import is_worth_a_minute
from autotune.search.study_search import TIME_SPENT, Proposal, Search, SearchExhausted
from autotune.settings import Settings
from autotune.store.records import Owner
from autotune.store.repository import Repository
from autotune.store.secrets import allowed_environment
from autotune.study.budget import LEAST_ROUNDS, Budget
from autotune.study.correction import Correction
from autotune.study.jobs import Jobs
from autotune.study.limits import enough_s
from autotune.study.measuring import Measuring
from autotune.study.stop import StopRequest
from autotune.units import format_minutes, format_seconds

RENEW_EVERY_S = 30.0
LEAST_HOPE = 0.9
"""Share of the baseline's rate up to which a trial has no hope in the finals."""
MAX_CUT_OFF = 6
"""Most trials in a row that are ended from outside: the same cause will end the next trial."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopEnd:
    """The reason for the end of a study's trials."""

    reason: str
    """One sentence."""
    is_limit: bool = False
    """True when the time or the number of trials ran out: a larger limit would have allowed more trials."""


class TrialLoop:
    """Runs the trials of one study until the search, the budget or the user ends the trials."""

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
        on_event: OnEvent,
        quiet: QuietWait | None = None,
        correct: Callable[[TrialResult, Jobs], Correction | None] = lambda result, jobs: None,
        start_afresh: Callable[[], bool] = lambda: False,
    ) -> None:
        self._correct = correct
        self.has_spent_its_time = False
        """Whether the latest trial was ended at its limit: the time left is the time of the finals."""
        self._num_cut_off = 0
        """Trials in a row, up to the latest, that were ended from outside."""
        self._gain_ratio_per_minute: float | None = None
        """Expected gain of a minute when the latest trial began, as a share of the best rate; None when unknown."""
        self._study, self._search = study, search
        self._repository, self._budget, self._stop, self._on_event = repository, budget, stop, on_event
        self.measuring = Measuring(
            search=search,
            jobs=jobs,
            runner=runner,
            budget=budget,
            stop=stop,
            on_event=on_event,
            quiet=quiet,
            start_afresh=start_afresh,
            recorded=lambda: repository.trials(study),
            now_and_then=self._renew,
        )
        """Measures the settings of trials, and of finals."""
        self._keeps_process: bool | None = None
        """Whether trials and finals stay in one process for want of time; None before the baseline."""
        self._owner = Owner.this_process()
        self._renewed_at = time.monotonic()
        self._others: frozenset[Owner] = frozenset()

    def recover(self) -> None:
        """Finishes the work of a killed tuner.

        Every result is told to Optuna exactly once, and only interrupted trials are run again.
        """
        for record in self._repository.trials(self._study):
            self.measuring.learn(record.result)
            if record.result.outcome.is_finished:
                self._learn_duration(record.result, record.number, record.settings)
        self._others = self._live_others()
        self._adopt()

    def _adopt(self) -> None:
        """Takes over from dead tuners: tells recorded results to Optuna, and queues interrupted trials again.

        The call belongs between two trials of this process.
        """
        for record in self._repository.trials(self._study):
            if not record.optuna_told and not self._search.is_held(record.number, self._is_dead):
                self._search.tell(record.number, record.result)
                self._repository.mark_told(self._study, record.number)
        self._search.reap(self._is_dead)

    def run(self) -> LoopEnd:
        """Runs trials until the search, the budget or the user ends them."""
        while not self._stop.level:
            known, self._others = self._others, self._live_others()
            if known - self._others:
                self._adopt()
            history = self._search.history
            self._keep_time_for_finals(history)
            if not self._budget.left_to_trials_s or not self._allows_trial():
                return LoopEnd(reason=self._why_time_is_spent(), is_limit=True)
            proposal = self._search.ask({"owner": to_plain(self._owner)}, self._prices(history))
            if isinstance(proposal, SearchExhausted):
                return LoopEnd(reason=proposal.reason, is_limit=proposal.is_limit)
            hopeless = self._why_hopeless(self._trial(proposal, history))
            if hopeless:
                return LoopEnd(reason=f"The script's own settings cannot be measured: {hopeless}")
            if self.has_spent_its_time:
                return LoopEnd(reason=self._why_time_is_spent(), is_limit=True)
            if self._num_cut_off >= MAX_CUT_OFF:
                return LoopEnd(reason=f"{self._num_cut_off} trials in a row were ended from outside this search.")
        return LoopEnd(reason="It was asked to stop.")

    def _prices(self, history: History) -> Prices:
        """Prices of trials now: a trial in a new process costs the start, and in a short search the comparison.

        Whether the search is a short one is decided once, after the baseline: the plan must not change its steps.
        """
        measuring, own = self.measuring, self._search.script_settings
        runner = measuring.keeping_runner
        if runner is None or not measuring.can_share(own):
            return Prices(trial_s=self._budget.trial_s, spare_s=self._budget.spare_s)
        if self._keeps_process is None and history.baseline is not None:
            self._keeps_process = self._budget.plans_sharing
        # Thousands of settings are priced for one trial, and a job takes 0.1 ms to make.
        job_of = cache(measuring.shared_job)
        can_share = cache(lambda settings: runner.can_switch(job_of(own), job_of(settings)))
        goes_on = cache(lambda settings: runner.goes_on(job_of(settings)))
        keeps_process, waits = bool(self._keeps_process), goes_on(own)
        return Prices(
            trial_s=lambda settings: self._budget.trial_s(settings, is_fresh=not goes_on(settings)),
            spare_s=lambda settings: self._budget.spare_s(settings, is_alone=not can_share(settings)),
            can_go_on=lambda settings: not keeps_process or can_share(settings),
            return_s=lambda settings: self._budget.return_s() if waits and not goes_on(settings) else 0.0,
        )

    def _allows_trial(self) -> bool:
        """Whether the time suffices for another trial in the process that waits, or in a new one."""
        return self._budget.allows_trial(is_fresh=not self.measuring.has_process if self.measuring.is_live else None)

    def _keep_time_for_finals(self, history: History) -> None:
        """Keeps the time for finals of the baseline and of the fastest other trial with affordable rounds."""
        if history.baseline is None:
            return
        own = history.baseline.number
        rival, is_in_process = self._rival(history, own)
        contenders = (own, rival) if rival is not None else ()
        least = LEAST_HOPE * (history.baseline.samples_per_second or 0.0)
        num_rivals = sum(
            trial.number != own and (trial.samples_per_second or 0.0) > least for trial in history.feasible
        )
        self._budget.keep_for(
            contenders,
            is_in_process=is_in_process and num_rivals > 0,
            is_noisy=scatters(history),
            num_rivals=num_rivals,
        )
        # With one measured trial there is nothing to publish yet, and the second trial may be a compilation.
        if history.best is not None and contenders and not self.measuring.jobs.target.device.is_cpu:
            self._budget.keep_for_looks(history.best.number, history.best.settings)

    def _rival(self, history: History, own: int) -> tuple[int | None, bool]:
        """The rival of the script's own settings to keep time for, and whether only the waiting process has the time.

        Returns:
            The number of the fastest rival with time for the fewest rounds; the fastest rival if the time suffices for
            none, and None without a rival. True if the rounds fit only in the waiting process.
        """
        rivals = [trial for trial in history.feasible if trial.number != own]
        for trial in rivals:
            if self._budget.affords_least_rounds((own, trial.number)):
                return trial.number, False
            if self._affords_in_process(trial, own):
                return trial.number, True
        return (rivals[0].number if rivals else None), False

    def _affords_in_process(self, trial: FinishedTrial, own: int) -> bool:
        """Whether the process that waits can compare a trial with the script's own, and the fewest rounds fit."""
        both = (trial.settings, self._search.script_settings)
        if not all(map(self.measuring.goes_on, both)):
            return False
        return self._budget.affords_shared_rounds(LEAST_ROUNDS, (own, trial.number))

    def _learn_duration(self, result: TrialResult, number: int, settings: Settings) -> None:
        is_whole = result.outcome is Outcome.OK and result.measurement is not None
        window_s = result.measurement.window_s if is_whole and result.measurement is not None else None
        self._budget.runs.trial_took(
            result.wall_s,
            window_s=window_s,
            num_blocks=result.measurement.num_blocks if result.measurement is not None else None,
            number=number,
            settings=settings,
            is_fresh=not result.is_live,
            startup_s=sum(result.durations_s.get(part, 0.0) for part in STARTUP) if result.durations_s else None,
            switch_s=result.durations_s.get(SWITCH),
            left_out_s=result.left_out_s,
            is_complete=result.outcome.is_complete,
        )

    def _trial(self, proposal: Proposal, before: History) -> Proposal:
        """Measures and records a trial.

        Args:
            proposal: The trial.
            before: The finished trials.

        Returns:
            The proposal under which the trial was recorded.
        """
        self._gain_ratio_per_minute = proposal.gain_ratio_per_minute
        self._on_event(
            TrialStarted(
                number=proposal.number,
                settings=proposal.settings,
                stage=proposal.stage,
                gain_ratio_per_minute=proposal.gain_ratio_per_minute,
            )
        )
        started_at = datetime.now(UTC)
        facts = self.measuring.jobs.facts
        first_step_s = facts.first_step_s if facts is not None else 0.0
        window_limit_s = self._budget.trial_window_s(first_step_s)
        result = self.measuring.measure(proposal.settings, is_final=False, window_limit_s=window_limit_s)
        if proposal.settings == self._search.script_settings:
            proposal, result = self._as_it_ran(proposal, result)
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
        # An interruption without a request from here is the host's fault: the trial is queued again, a limited number
        # of times.
        is_host_fault = not self._stop.level and self._budget.spent_s < self.measuring.ends_at_s
        is_interrupted = result.outcome is Outcome.INTERRUPTED
        self._num_cut_off = self._num_cut_off + 1 if is_interrupted and is_host_fault else 0
        self.has_spent_its_time = is_interrupted and not is_host_fault and not self._stop.level
        self._search.tell(proposal.number, result, is_host_fault=is_host_fault)
        self._repository.mark_told(self._study, proposal.number)
        self._repository.add_spent(self._study, self._budget.unsaved_s())
        self._learn_duration(result, proposal.number, proposal.settings)
        self.measuring.learn(result)
        rate = result.measurement.samples_per_second if result.measurement else 0.0
        best_before = (before.best.samples_per_second if before.best is not None else None) or 0.0
        is_best = result.outcome is Outcome.OK and rate > best_before
        self._on_event(
            TrialFinished(
                number=proposal.number,
                settings=proposal.settings,
                stage=proposal.stage,
                result=result,
                is_best=is_best,
            )
        )
        return proposal

    def _as_it_ran(self, proposal: Proposal, result: TrialResult) -> tuple[Proposal, TrialResult]:
        """Gives the baseline the settings seen in its own run, when the probe had read different settings."""
        can_begin_anew = not self._others and self._search.can_begin_anew(proposal.number)
        correction = self._correct(result, self.measuring.jobs) if can_begin_anew else None
        if correction is None:
            return proposal, result
        self.measuring.jobs = correction.jobs
        self._search.begin_anew(correction.space)
        self._on_event(Notice(message=correction.message, is_warning=False))
        anew = self._search.ask({"owner": to_plain(self._owner)})
        assert isinstance(anew, Proposal), "the baseline comes first in a study without a trial"
        return anew, replace(result, notes=(*result.notes, correction.message))

    def _why_time_is_spent(self) -> str:
        if self._search.history.baseline is not None:
            # The forecast is no figure to publish: trials of a minute do not gain in sum what each may gain alone.
            may_gain = is_worth_a_minute(self._gain_ratio_per_minute)
            return f"{TIME_SPENT} More time may gain more." if may_gain else TIME_SPENT
        given = format_seconds(self._budget.total_s)
        enough = format_minutes(enough_s(self._budget, self._search.history, self.measuring.jobs.facts))
        return (
            f"The time of {given} was spent before the script's own settings were measured once. "
            f"About --time {enough} is enough to compare one other setting with yours."
        )

    def _why_hopeless(self, proposal: Proposal) -> str:
        """Why the trial failed, if it is the baseline, and failed for another reason than memory; else empty.

        Without a baseline nothing can be compared.
        """
        if proposal.settings != self._search.script_settings:
            return ""  # Known without a look into the database.
        baseline = self._search.history.baseline
        if baseline is None or baseline.number != proposal.number or not baseline.outcome.is_failed:
            return ""
        return baseline.reason or f"its trial ended {baseline.outcome}."

    def _live_others(self) -> frozenset[Owner]:
        """Living tuners of the same study, this process excepted."""
        return frozenset(self._repository.live_owners(self._study, now=datetime.now(UTC))) - {self._owner}

    def _is_dead(self, attributes: dict[str, object]) -> bool:
        """Whether the tuner that began a trial is gone; between two trials, this process counts as gone.

        A trial without an owner was just taken from the queue, by a killed tuner unless further tuners live.
        """
        owner = attributes.get("owner")
        if owner is None:
            return not self._others
        return owner not in [to_plain(other) for other in self._others]

    def _renew(self) -> None:
        if time.monotonic() - self._renewed_at >= RENEW_EVERY_S:
            self._renewed_at = time.monotonic()
            # An unreachable database does not end the trial: the result waits for the database.
            with suppress(StoreError):
                self._repository.renew_lease(self._study, self._owner, now=datetime.now(UTC))
