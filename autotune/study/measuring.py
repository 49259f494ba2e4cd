"""Measures settings with the user's script: a run within the time, and a second run if the first tells too little."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from autotune.measure.loss_parity import LossReference
from autotune.model.events import LargerBatchStarted, MemoryShareStarted, Notice, OnEvent
from autotune.model.outcome import Outcome
from autotune.model.result import RankStatus, StartKind, TrialResult
from autotune.model.trial_records import TrialRecord
from autotune.protocol.job import TrialJob
from autotune.runner.quiet_wait import Quiet, QuietWait
from autotune.runner.runner import KeepingRunner, Run, Runner
from autotune.search.beside_load import is_suspect
from autotune.search.study_search import Search
from autotune.settings import Settings
from autotune.store.secrets import mask_text
from autotune.study.budget import Budget, LaterFinals
from autotune.study.jobs import Jobs
from autotune.study.progress import ProgressTeller
from autotune.study.repeats import Repeats
from autotune.study.script_end import ScriptEnd
from autotune.study.stop import StopRequest, wait_for
from autotune.units import format_seconds
from autotune.verdict.format_parity import references_of
from autotune.verdict.judge import has_diverged
from autotune.verdict.skipped_steps import own_skipped_share

DOUBT_SHARE = 0.06
"""Largest price of a second run, as a share of the given time, for settings whose failure an earlier measurement of the
process may have caused: most of them fail in any process."""
LOST_WORKER = "DataLoader worker"
"""Words of torch's error when a loader's worker raised, was killed or ended."""
MAX_REPEATS = 3
"""Most trials that a search throws away because the device was disturbed."""
MAX_FINAL_REPEATS = 4
"""Most finals that a search throws away because others disturbed the device or kept the cores busy."""
NO_LATER_FINALS = LaterFinals()


class Measuring:
    """Measures settings for one study, and keeps what the runs show of the script.

    Args:
        search: Knows the script's own settings, and the best rate so far.
        jobs: Makes the job of a run.
        runner: Runs a job.
        budget: Time of the search.
        stop: The user's request to end.
        on_event: Receives notices and the progress of runs.
        quiet: Waits for a quiet machine before a run; None does not wait.
        start_afresh: Lets trials start without the probe's outputs, when the baseline fails; returns whether that makes
            a difference.
        recorded: Gives the trials of the study in the database.
        now_and_then: Called while a run lasts, to renew the study's lease.
    """

    def __init__(
        self,
        *,
        search: Search,
        jobs: Jobs,
        runner: Runner,
        budget: Budget,
        stop: StopRequest,
        on_event: OnEvent,
        quiet: QuietWait | None,
        start_afresh: Callable[[], bool],
        recorded: Callable[[], Sequence[TrialRecord]],
        now_and_then: Callable[[], None],
    ) -> None:
        self._search, self.jobs, self._runner, self._budget = search, jobs, runner, budget
        self._stop, self._on_event, self._quiet = stop, on_event, quiet
        self._start_afresh, self._recorded, self._now_and_then = start_afresh, recorded, now_and_then
        self._progress = ProgressTeller(on_event)
        self._repeats = Repeats(MAX_REPEATS, lambda found: found.device_disturbances)
        self._race_repeats = Repeats(MAX_REPEATS, lambda found: found.disturbances_by_others, Outcome.RACED_OUT)
        self._final_repeats = Repeats(MAX_FINAL_REPEATS, lambda found: found.disturbances_by_others)
        self.ends_at_s = math.inf
        """Time spent by the search, in seconds, at which the latest run was to be ended."""
        self._references: dict[str, LossReference] = {}
        """First losses in fp32, by the digest of the initial weights and the first batch."""
        self._own_skipped_share: float | None = None
        """Share of optimizer steps that a gradient scaler skipped under the script's own settings; None if unknown."""
        self._was_live = False
        """Whether some trial of the study went on in the process of another."""
        self._script_end = ScriptEnd()
        if jobs.is_live:
            budget.allow_sharing(lambda: self.goes_on(search.script_settings))

    @property
    def is_live(self) -> bool:
        """Whether one process may serve several measurements."""
        return self.jobs.is_live

    @property
    def has_process(self) -> bool:
        """Whether a process of the script waits for further measurements."""
        return isinstance(self._runner, KeepingRunner) and self._runner.has_process

    @property
    def keeping_runner(self) -> KeepingRunner | None:
        """The runner, if it keeps a process between measurements; else None."""
        return self._runner if isinstance(self._runner, KeepingRunner) else None

    def can_share(self, settings: Settings) -> bool:
        """Whether a process of the script's own settings can go on with the settings."""
        runner = self.keeping_runner
        if not self.is_live or runner is None:
            return False
        return runner.can_switch(self.shared_job(self._search.script_settings), self.shared_job(settings))

    def goes_on(self, settings: Settings) -> bool:
        """Whether the waiting process can go on with the settings."""
        runner = self.keeping_runner
        return runner is not None and runner.goes_on(self.shared_job(settings))

    def shared_job(self, settings: Settings) -> TrialJob:
        """The job of a measurement in a process of other measurements."""
        return self._script_end.written_to(self.jobs.trial(settings, is_final=True, is_shared=True))

    def learn(self, result: TrialResult) -> None:
        """Keeps what a trial, of this session or an earlier one, shows for later runs."""
        self._was_live |= result.is_live
        own = self.jobs.script_settings
        if result.is_live or own is None:
            return
        # The losses of a live trial begin with weights that no other trial has.
        for reference in references_of(result, own.precision):
            known = self._references.get(reference.start_digest)
            if known is None or (reference.batches and not known.batches):  # A record of an older version has none.
                self._references[reference.start_digest] = reference

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
        job = self.jobs.trial(
            settings,
            # Everything is compared with the script's own settings, however slow they are.
            incumbent=None if is_own else self._incumbent(),
            is_final=is_final,
            is_shared=is_shared,
            window_limit_s=window_limit_s,
        )
        first = self._undisturbed(job, is_final=is_final, later=later)
        is_again = self._has_learned_its_end(first) or _may_be_accident(job, first, is_final=is_final)
        is_doubtful = not is_final and _may_owe_to_process(self._with_own_skips(job), first)
        if is_doubtful and not is_again:
            is_again = self._affords_doubt(settings)
        has_time = self._budget.left_to_finals_s if is_final else self._limit_s(self._script_end.written_to(job))
        if not is_again or self._stop.level or not has_time:
            return first
        note = _note_on(first)
        self._on_event(Notice(message=f"The trial is run again. {note}", is_warning=False))
        is_scripts = job.request.settings == job.script_settings
        if is_scripts and first.outcome.is_failed and self._search.history.best is None:
            self._start_afresh()
        second = self._undisturbed(job, is_final=is_final, later=later)
        if second.outcome is Outcome.INTERRUPTED and is_doubtful:
            return first
        if not is_final and _has_lost_worker_live(first) and second.outcome is Outcome.OK:
            self._budget.forbid_sharing()  # Finals in one process would lose the worker again in each round.
        return replace(second, notes=(*second.notes, note))

    def compute_rate(self, settings: Settings, factor: int) -> float | None:
        """Compute-only samples per second with a batch `factor` times as large; None when no rate was measured."""
        self._on_event(LargerBatchStarted(factor=factor))
        measurement = self._run(self.jobs.batch_probe(settings, factor)).measurement
        return measurement.compute_samples_per_second if measurement is not None else None

    def look(self, settings: Settings, limit_bytes: int) -> TrialResult:
        """Measures settings under a limit of the device's memory, in bytes; no trial."""
        self._on_event(MemoryShareStarted(limit_bytes=limit_bytes))
        return self._run(self.jobs.look(settings, limit_bytes), is_final=True)

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

    def _run(self, job: TrialJob, *, is_final: bool = False) -> TrialResult:
        """Runs the script, at most until the end of the search's time; a trial leaves the finals their time."""
        references = tuple(self._references.values())
        request = replace(job.request, references=references)
        job = self._script_end.written_to(self._with_own_skips(replace(job, request=request)))
        found = self._wait_for_quiet()
        left_s = self._budget.left_to_finals_s if is_final else self._limit_s(job)
        self.ends_at_s = self._budget.spent_s + left_s
        job = replace(job, ends_by=time.monotonic() + left_s)
        handle = self._runner.start(job)
        wait_for(handle, self._stop, now_and_then=lambda: self._watch(handle))
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
        if self._was_live or not is_own or not job.serves or self.keeping_runner is None:
            return
        if not self.has_process:
            self._budget.forbid_sharing()

    def _limit_s(self, job: TrialJob) -> float:
        """Seconds until a trial is ended."""
        settings = job.request.settings
        if settings is None:
            return self._budget.left_to_trials_s
        is_fresh = not self.goes_on(settings) if self.is_live else None
        price_s = self._budget.cautious_trial_s(settings, is_fresh=is_fresh)
        # A larger batch is measured for a note alone: the finals can start anew after it.
        is_for_note = (job.request.batch_probe_factor or 1) > 1
        return self._budget.limit_s(price_s, is_alone=is_for_note or self._is_alone(job))

    def _is_alone(self, job: TrialJob) -> bool:
        """Whether no process of the script can measure both the job's settings and the script's own."""
        runner = self.keeping_runner
        if not self.is_live or runner is None:
            return False
        return not runner.can_switch(self.shared_job(self._search.script_settings), job)

    def _wait_for_quiet(self) -> Quiet | None:
        """The state of the machine after a wait for quiet; None when no wait was asked for."""
        if self._quiet is None:
            return None
        self._progress.waits()
        return self._quiet.wait(lambda: bool(self._stop.level), holds_memory=self.has_process)

    def _watch(self, run: Run) -> None:
        """Renews the lease, and tells the progress of a running measurement."""
        self._now_and_then()
        self._progress.look(run)

    def _may_repeat(self, result: TrialResult, *, is_final: bool, later: LaterFinals) -> bool:
        """Whether the time suffices for another run, beside the finals that must follow."""
        budget = self._budget
        spare_s = (
            budget.left_to_finals_s - later.needed_s(result.wall_s) if is_final else budget.left_s - budget.reserve_s
        )
        return spare_s > result.wall_s and not self._stop.level

    def _affords_doubt(self, settings: Settings) -> bool:
        """Whether a trial in a new process fits the time, at a small share of the given time."""
        is_small = self._budget.trial_s(settings, is_fresh=True) <= DOUBT_SHARE * self._budget.total_s
        return is_small and self._budget.allows_trial(is_fresh=True)

    def _has_learned_its_end(self, result: TrialResult) -> bool:
        """Learns the script's end from a run; true when a second run can make use of this."""
        known = self._script_end.script_steps
        has_learned = self._script_end.learn(result)
        if self._script_end.script_steps != known:
            self._budget.forbid_sharing()
        return has_learned

    def _with_own_skips(self, job: TrialJob) -> TrialJob:
        """The job with the share of steps that the script's own settings skip, once a tuner of the study knows it."""
        if self._own_skipped_share is None and (baseline := self._search.history.baseline) is not None:
            self._own_skipped_share = own_skipped_share(self._recorded(), baseline.number)
        return replace(job, own_skipped_share=self._own_skipped_share)

    def _incumbent(self) -> float | None:
        """The best rate beyond suspicion of other load, for a trial to race against; None without a rate."""
        history = self._search.history
        above_suspicion = (trial for trial in history.feasible if not is_suspect(trial, history.baseline))
        best = next(above_suspicion, None)
        return best.samples_per_second if best is not None else None


def _note_on(first: TrialResult) -> str:
    """The note on a first run that is run again."""
    if first.start is StartKind.PREPARED:
        took = format_seconds(first.wall_s)
        return f"A first run, from the script's own beginning on, ended {first.outcome} after {took}: {first.why}"
    return f"A first run ended {first.outcome}: {first.why}"


def _may_owe_to_process(job: TrialJob, result: TrialResult) -> bool:
    """Whether earlier measurements of the process may be the reason of a failure, so that a new process tells more."""
    return result.is_doubtful_over_cap or _has_diverged_live(job, result) or _has_lost_worker_live(result)


def _has_diverged_live(job: TrialJob, result: TrialResult) -> bool:
    """Whether weights that an earlier measurement of the process may have broken are the reason of a failure."""
    is_other = bool(result.missed) or result.is_inconclusive
    is_invalid = result.outcome is Outcome.INVALID and result.is_live
    return is_invalid and not is_other and any(has_diverged(job, rank) for rank in result.ranks)


def _has_lost_worker_live(result: TrialResult) -> bool:
    """Whether a loader's worker failed in the process of several trials.

    A dataset may open its file at the first sample. Without workers the training process opened the file in an earlier
    trial, and workers forked now share its position: such a dataset read broken records, and raised an error.
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
