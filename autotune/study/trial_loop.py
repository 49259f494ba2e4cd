"""Runs the loop over trials: ask, run, record, tell; every trial is in the database before the next trial begins."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache

from autotune.errors import StoreError
from autotune.measure.loss_parity import LossReference
from autotune.model.events import LargerBatchStarted, MemoryShareStarted, Notice, OnEvent, TrialFinished, TrialStarted
from autotune.model.outcome import Outcome
from autotune.model.result import STARTUP, SWITCH, RankStatus, StartKind, TrialResult
from autotune.model.trial_records import TrialRecord
from autotune.protocol.codec import to_plain
from autotune.protocol.job import TrialJob
from autotune.runner.quiet_wait import Quiet, QuietWait
from autotune.runner.runner import KeepingRunner, Run, Runner
from autotune.search.beside_load import is_suspect
from autotune.search.history import FinishedTrial, History
from autotune.search.prices import Prices
from autotune.search.search_stopping import is_worth_a_minute
from autotune.search.study_search import TIME_SPENT, Proposal, Search, SearchExhausted
from autotune.settings import Settings
from autotune.store.records import Owner
from autotune.store.repository import Repository
from autotune.store.secrets import allowed_environment, mask_text
from autotune.study.budget import LEAST_ROUNDS, Budget, LaterFinals
from autotune.study.correction import Correction
from autotune.study.jobs import Jobs
from autotune.study.limits import enough_s
from autotune.study.progress import ProgressTeller
from autotune.study.repeats import Repeats
from autotune.study.script_end import ScriptEnd
from autotune.study.stop import StopRequest, wait_for
from autotune.units import format_minutes, format_seconds
from autotune.verdict.format_parity import references_of
from autotune.verdict.judge import has_diverged
from autotune.verdict.skipped_steps import own_skipped_share

RENEW_EVERY_S = 30.0
LEAST_HOPE = 0.9
"""Share of the baseline's rate up to which a trial has no hope in the finals."""
DOUBT_SHARE = 0.06
"""Largest price of a second run, as a share of the given time, for settings that were over the cap in a running
process: most are over the cap in any process."""
LOST_WORKER = "DataLoader worker"
"""What torch's errors name when a loader's worker raised, was killed, or ended."""
MAX_REPEATS = 3
"""Most trials that a search throws away because the device was disturbed."""
MAX_CUT_OFF = 6
"""Most trials in a row that are ended from outside: the same cause will end the next trial."""
MAX_FINAL_REPEATS = 4
"""Most finals that a search throws away because others disturbed the device or kept the cores busy."""
NO_LATER_FINALS = LaterFinals()


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
        self._start_afresh: Callable[[], bool] = start_afresh
        """Lets trials start without the probe's outputs, when the baseline fails; whether that makes a difference."""
        self._quiet, self._correct = quiet, correct
        self._progress = ProgressTeller(on_event)
        self._repeats = Repeats(MAX_REPEATS, lambda found: found.device_disturbances)
        self._race_repeats = Repeats(MAX_REPEATS, lambda found: found.disturbances_by_others, Outcome.RACED_OUT)
        self._final_repeats = Repeats(MAX_FINAL_REPEATS, lambda found: found.disturbances_by_others)
        self._ends_at_s = math.inf
        """Time spent by the search, in seconds, at which the latest run was to be ended."""
        self.has_spent_its_time = False
        """Whether the latest trial was ended at its limit: the time left is the time of the finals."""
        self._num_cut_off = 0
        """Trials in a row, up to the latest, that were ended from outside."""
        self._gain_ratio_per_minute: float | None = None
        """Expected gain of a minute when the latest trial began, as a share of the best rate; None when unknown."""
        self._references: dict[str, LossReference] = {}
        """First losses in fp32, by the digest of the initial weights and the first batch."""
        self._own_skipped_share: float | None = None
        """Share of optimizer steps that a gradient scaler skipped under the script's own settings; None if unknown."""
        self._was_live = False
        """Whether some trial of the study went on in the process of another."""
        self._script_end = ScriptEnd()
        self._study, self._search, self._jobs, self._runner = study, search, jobs, runner
        self._repository, self._budget, self._stop, self._on_event = repository, budget, stop, on_event
        if jobs.is_live:
            budget.allow_sharing(lambda: self._goes_on(search.script_settings))
        self._keeps_process: bool | None = None
        """Whether trials and finals stay in one process for want of time; None before the baseline."""
        self._owner = Owner.this_process()
        self._renewed_at = time.monotonic()
        self._others: frozenset[Owner] = frozenset()

    @property
    def is_live(self) -> bool:
        """Whether one process may serve several measurements."""
        return self._jobs.is_live

    def recover(self) -> None:
        """Finishes the work of a killed tuner.

        Every result is told to Optuna exactly once, and only interrupted trials are run again.
        """
        for record in self._repository.trials(self._study):
            self._learn_losses(record.result)
            self._was_live |= record.result.is_live
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
            self._keep_time_for_finals()
            if not self._budget.left_to_trials_s or not self._allows_trial():
                return LoopEnd(reason=self._why_time_is_spent(), is_limit=True)
            proposal = self._search.ask({"owner": to_plain(self._owner)}, self._prices())
            if isinstance(proposal, SearchExhausted):
                return LoopEnd(reason=proposal.reason, is_limit=proposal.is_limit)
            hopeless = self._why_hopeless(self._trial(proposal))
            if hopeless:
                return LoopEnd(reason=f"The script's own settings cannot be measured: {hopeless}")
            if self.has_spent_its_time:
                return LoopEnd(reason=self._why_time_is_spent(), is_limit=True)
            if self._num_cut_off >= MAX_CUT_OFF:
                return LoopEnd(reason=f"{self._num_cut_off} trials in a row were ended from outside this search.")
        return LoopEnd(reason="It was asked to stop.")

    def _prices(self) -> Prices:
        """Prices of trials now: a trial in a new process costs the start, and in a short search the comparison.

        Whether the search is a short one is decided once, after the baseline: the plan must not change its steps.
        """
        runner, own = self._runner, self._search.script_settings
        if not isinstance(runner, KeepingRunner) or not self.can_share(own):
            return Prices(trial_s=self._budget.trial_s, spare_s=self._budget.spare_s)
        if self._keeps_process is None and self._search.history.baseline is not None:
            self._keeps_process = self._budget.plans_sharing
        # Thousands of settings are priced for one trial, and a job takes 0.1 ms to make.
        job_of = cache(self._shared_job)
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
        return self._budget.allows_trial(is_fresh=not self.has_process if self._jobs.is_live else None)

    def _keep_time_for_finals(self) -> None:
        """Keeps the time for finals of the baseline and of the fastest other trial with affordable rounds."""
        history = self._search.history
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
            is_noisy=self._search.is_noisy,
            num_rivals=num_rivals,
        )
        # With one measured trial there is nothing to publish yet, and the second trial may be a compilation.
        if history.best is not None and contenders and not self._jobs.target.device.is_cpu:
            self._budget.keep_for_looks(history.best.number, history.best.settings)

    def _rival(self, history: History, own: int) -> tuple[int | None, bool]:
        """The rival of the script's own settings to keep time for, and whether only the waiting process has the time.

        Returns:
            The number of the fastest other trial whose fewest rounds fit the time, or of the fastest other trial if no
            rounds fit; None without another trial. True if these rounds fit only in the waiting process.
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
        return all(map(self._goes_on, both)) and self._budget.affords_shared_rounds(LEAST_ROUNDS, (own, trial.number))

    @property
    def has_process(self) -> bool:
        """Whether a process of the script waits for further measurements."""
        return isinstance(self._runner, KeepingRunner) and self._runner.has_process

    def can_share(self, settings: Settings) -> bool:
        """Whether a process of the script's own settings can go on with the settings."""
        if not self.is_live or not isinstance(self._runner, KeepingRunner):
            return False
        return self._runner.can_switch(self._shared_job(self._search.script_settings), self._shared_job(settings))

    def _goes_on(self, settings: Settings) -> bool:
        """Whether the waiting process can go on with the settings."""
        return isinstance(self._runner, KeepingRunner) and self._runner.goes_on(self._shared_job(settings))

    def _shared_job(self, settings: Settings) -> TrialJob:
        """The job of a measurement in a process of other measurements."""
        return self._script_end.written_to(self._jobs.trial(settings, is_final=True, is_shared=True))

    def measure(
        self,
        settings: Settings,
        *,
        is_final: bool,
        is_shared: bool = False,
        window_limit_s: float = math.inf,
        later: LaterFinals = NO_LATER_FINALS,
    ) -> TrialResult:
        """Runs the script under the settings, and once more when the settings may not be the cause of a failure.

        Args:
            settings: Settings to measure.
            is_final: Whether to measure longer, and never to race.
            is_shared: Whether a final may run in the process of the trials.
            window_limit_s: Longest window, in seconds.
            later: The finals that must follow. A disturbed final is repeated only if these finals still fit the time.
        """
        is_own = settings == self._search.script_settings
        job = self._jobs.trial(
            settings,
            # Everything is compared with the script's own settings, however slow they are.
            incumbent=None if is_own else self._incumbent(),
            is_final=is_final,
            is_shared=is_shared,
            window_limit_s=window_limit_s,
        )
        first = self._undisturbed(job, is_final=is_final, later=later)
        is_again = self._has_learned_its_end(first) or _may_be_accident(job, first, is_final=is_final)
        is_doubtful = (
            first.is_doubtful_over_cap
            or _has_diverged_live(self._with_own_skips(job), first)
            or _has_lost_worker_live(first)
        )
        if is_doubtful:
            is_again = not is_final and self._affords_doubt(settings)
        has_time = self._budget.left_to_finals_s if is_final else self._limit_s(self._script_end.written_to(job))
        if not is_again or self._stop.level or not has_time:
            return first
        note = f"A first run ended {first.outcome}: {first.why}"
        if first.start is StartKind.PREPARED:
            took = format_seconds(first.wall_s)
            note = f"A first run, from the script's own beginning on, ended {first.outcome} after {took}: {first.why}"
        self._on_event(Notice(message=f"The trial is run again. {note}", is_warning=False))
        if (
            first.outcome.is_failed
            and job.request.settings == job.script_settings
            and self._search.history.best is None
        ):
            self._start_afresh()
        second = self._undisturbed(job, is_final=is_final, later=later)
        if second.outcome is Outcome.INTERRUPTED and is_doubtful:
            return first
        return replace(second, notes=(*second.notes, note))

    def _undisturbed(self, job: TrialJob, *, is_final: bool, later: LaterFinals) -> TrialResult:
        """Runs the script on a quiet machine, and once more when others disturbed the run."""

        def run() -> TrialResult:
            return self._run(job, is_final=is_final)

        def may_repeat(first: TrialResult) -> bool:
            return self._may_repeat(first, is_final=is_final, later=later)

        if is_final:
            return self._final_repeats.undisturbed(run, may_repeat)
        # A trial that loses its race beside a neighbour may have lost by the neighbour alone.
        return self._race_repeats.undisturbed(lambda: self._repeats.undisturbed(run, may_repeat), may_repeat)

    def compute_rate(self, settings: Settings, factor: int) -> float | None:
        """Compute-only samples per second with a batch `factor` times as large; None when no rate was measured."""
        self._on_event(LargerBatchStarted(factor=factor))
        measurement = self._run(self._jobs.batch_probe(settings, factor)).measurement
        return measurement.compute_samples_per_second if measurement is not None else None

    def look(self, settings: Settings, limit_bytes: int) -> TrialResult:
        """Measures settings under a limit of the device's memory, in bytes; no trial."""
        self._on_event(MemoryShareStarted(limit_bytes=limit_bytes))
        return self._run(self._jobs.look(settings, limit_bytes), is_final=True)

    def _run(self, job: TrialJob, *, is_final: bool = False) -> TrialResult:
        """Runs the script, at most until the end of the search's time; a trial leaves the finals their time."""
        references = tuple(self._references.values())
        request = replace(job.request, references=references)
        job = self._script_end.written_to(self._with_own_skips(replace(job, request=request)))
        found = self._wait_for_quiet()
        left_s = self._budget.left_to_finals_s if is_final else self._limit_s(job)
        self._ends_at_s = self._budget.spent_s + left_s
        job = replace(job, ends_by=time.monotonic() + left_s)
        handle = self._runner.start(job)
        wait_for(handle, self._stop, now_and_then=lambda: self._look(handle))
        result = handle.result()
        self._learn_keeping(job, result)
        # The script's error message goes to the terminal, into notes, and into Optuna's tables.
        result = replace(result, reason=mask_text(result.reason))
        if self._stop.level and (result.outcome is Outcome.CRASHED or result.has_ended_early):
            # The request to stop may have reached the script too, and says nothing about the settings.
            why = f"It ended when the search was asked to end: {result.reason}"
            result = replace(result, outcome=Outcome.INTERRUPTED, reason=why)
        return found.written_with(result) if found is not None else result

    def _learn_keeping(self, job: TrialJob, result: TrialResult) -> None:
        """Expects new processes from now on, if no process has ever gone on, nor after the script's own settings."""
        self._was_live |= result.is_live
        is_own = result.outcome is Outcome.OK and job.request.settings == self._search.script_settings
        if self._was_live or not is_own or not job.serves or not isinstance(self._runner, KeepingRunner):
            return
        if not self._runner.has_process:
            self._budget.forbid_sharing()

    def _limit_s(self, job: TrialJob) -> float:
        """Seconds until a trial is ended."""
        settings = job.request.settings
        if settings is None:
            return self._budget.left_to_trials_s
        is_fresh = not self._goes_on(settings) if self.is_live else None
        price_s = self._budget.cautious_trial_s(settings, is_fresh=is_fresh)
        # A larger batch is measured for a note alone: the finals can start anew after it.
        is_for_note = job.request.batch_probe_factor is not None
        return self._budget.limit_s(price_s, is_alone=is_for_note or self._is_alone(job))

    def _affords_doubt(self, settings: Settings) -> bool:
        """Whether a trial in a new process fits the time, at a small share of the given time."""
        is_small = self._budget.trial_s(settings, is_fresh=True) <= DOUBT_SHARE * self._budget.total_s
        return is_small and self._budget.allows_trial(is_fresh=True)

    def _is_alone(self, job: TrialJob) -> bool:
        """Whether no process of the script can measure both the job's settings and the script's own."""
        if not self.is_live or not isinstance(self._runner, KeepingRunner):
            return False
        return not self._runner.can_switch(self._shared_job(self._search.script_settings), job)

    def _wait_for_quiet(self) -> Quiet | None:
        """The state of the machine after a wait for quiet; None when no wait was asked for."""
        if self._quiet is None:
            return None
        self._progress.waits()
        return self._quiet.wait(lambda: bool(self._stop.level), holds_memory=self.has_process)

    def _look(self, run: Run) -> None:
        """Renews the lease and tells the progress of a running trial."""
        self._renew()
        self._progress.look(run)

    def _may_repeat(self, result: TrialResult, *, is_final: bool, later: LaterFinals) -> bool:
        """Whether the time suffices for another run, beside the finals that must follow."""
        budget = self._budget
        spare_s = (
            budget.left_to_finals_s - later.needed_s(result.wall_s) if is_final else budget.left_s - budget.reserve_s
        )
        return spare_s > result.wall_s and not self._stop.level

    def _has_learned_its_end(self, result: TrialResult) -> bool:
        """Learns the script's end from a run; true when a second run can make use of this."""
        known = self._script_end.script_steps
        has_learned = self._script_end.learn(result)
        if self._script_end.script_steps != known:
            self._budget.forbid_sharing()
        return has_learned

    def _learn_losses(self, result: TrialResult) -> None:
        """Keeps the losses of runs in fp32, and in the script's own format, as references for other formats."""
        own = self._jobs.script_settings
        if result.is_live or own is None:
            return
        # The losses of a live trial begin with weights that no other trial has.
        for reference in references_of(result, own.precision):
            self._references.setdefault(reference.start_digest, reference)

    def _with_own_skips(self, job: TrialJob) -> TrialJob:
        """The job with the share of steps that the script's own settings skip, once a tuner of the study knows it."""
        if self._own_skipped_share is None and (baseline := self._search.history.baseline) is not None:
            self._own_skipped_share = own_skipped_share(self._repository.trials(self._study), baseline.number)
        return replace(job, own_skipped_share=self._own_skipped_share)

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

    def _trial(self, proposal: Proposal) -> Proposal:
        """Measures and records a trial; returns the proposal under which the trial was recorded."""
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
        best_before = self._best_rate()
        first_step_s = self._jobs.facts.first_step_s if self._jobs.facts is not None else 0.0
        window_limit_s = self._budget.trial_window_s(first_step_s)
        result = self.measure(proposal.settings, is_final=False, window_limit_s=window_limit_s)
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
        is_host_fault = not self._stop.level and self._budget.spent_s < self._ends_at_s
        is_interrupted = result.outcome is Outcome.INTERRUPTED
        self._num_cut_off = self._num_cut_off + 1 if is_interrupted and is_host_fault else 0
        self.has_spent_its_time = is_interrupted and not is_host_fault and not self._stop.level
        self._search.tell(proposal.number, result, is_host_fault=is_host_fault)
        self._repository.mark_told(self._study, proposal.number)
        self._repository.add_spent(self._study, self._budget.unsaved_s())
        self._learn_duration(result, proposal.number, proposal.settings)
        self._learn_losses(result)
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
        return proposal

    def _as_it_ran(self, proposal: Proposal, result: TrialResult) -> tuple[Proposal, TrialResult]:
        """Gives the baseline the settings seen in its own run, when the probe had read different settings."""
        can_begin_anew = not self._others and self._search.can_begin_anew(proposal.number)
        correction = self._correct(result, self._jobs) if can_begin_anew else None
        if correction is None:
            return proposal, result
        self._jobs = correction.jobs
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
        enough = format_minutes(enough_s(self._budget, self._search.history, self._jobs.facts))
        return (
            f"The time of {given} was spent before the script's own settings were measured once. "
            f"About --time {enough} is enough to compare one other setting with yours."
        )

    def _best_rate(self) -> float | None:
        best = self._search.history.best
        return best.samples_per_second if best is not None else None

    def _incumbent(self) -> float | None:
        """The best rate beyond suspicion of other load, for a trial to race against; None without a rate."""
        history = self._search.history
        above_suspicion = (trial for trial in history.feasible if not is_suspect(trial, history.baseline))
        best = next(above_suspicion, None)
        return best.samples_per_second if best is not None else None

    def _why_hopeless(self, proposal: Proposal) -> str:
        """Why the trial failed, if it is the baseline, and failed for another reason than memory; else empty.

        Without a baseline nothing can be compared.
        """
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


def _has_diverged_live(job: TrialJob, result: TrialResult) -> bool:
    """Whether weights that an earlier measurement of the process may have broken are the reason of a failure."""
    is_other = bool(result.missed) or result.is_inconclusive
    is_invalid = result.outcome is Outcome.INVALID and result.is_live
    return is_invalid and not is_other and any(has_diverged(job, rank) for rank in result.ranks)


def _has_lost_worker_live(result: TrialResult) -> bool:
    """Whether a loader's worker failed in the process of several trials.

    A dataset may open its file at the first sample. Without workers the training process opened the file in an earlier
    trial, and workers forked now share its position: a dataset of records read broken ones, and raised.
    """
    errors = [rank.error.message for rank in result.ranks if rank.error is not None]
    return result.is_live and result.outcome is Outcome.CRASHED and any(LOST_WORKER in text for text in errors)


def _may_be_accident(job: TrialJob, result: TrialResult, *, is_final: bool) -> bool:
    """Whether a failure may come from the start or the host, so that a second run tells more.

    An error of the script under tuned settings is taken apart by the search, and not run a second time.
    """
    if is_final and result.outcome is Outcome.INTERRUPTED:
        return True  # The search queues a trial again that was ended from outside, but not a final.
    if result.outcome not in (Outcome.CRASHED, Outcome.TIMED_OUT):
        return False
    has_raised = any(rank.status is RankStatus.RAISED for rank in result.ranks)
    is_told = has_raised or result.outcome is Outcome.TIMED_OUT
    return is_final or job.request.settings == job.script_settings or result.start is StartKind.PREPARED or not is_told
