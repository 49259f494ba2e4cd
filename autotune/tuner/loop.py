"""The loop over trials: ask, run, record, tell; every trial is in the database before the next one begins."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from autotune.errors import StoreError
from autotune.measure.parity import LossReference
from autotune.model.events import Event, LargerBatchStarted, Notice, TrialFinished, TrialStarted
from autotune.model.job import TrialJob
from autotune.model.outcome import Outcome
from autotune.model.result import PAST_ITS_EPOCH, RankStatus, TrialResult
from autotune.plain import to_plain
from autotune.runner.judge import ENDED_EARLY
from autotune.runner.parity import references_of
from autotune.runner.protocol import Run, Runner
from autotune.runner.quiet import Quiet, QuietWait
from autotune.search.search import Proposal, Search, SearchExhausted
from autotune.settings import Settings
from autotune.store.records import Owner, TrialRecord
from autotune.store.repository import Repository
from autotune.store.secrets import allowed_environment, mask_text
from autotune.tuner.budget import Budget
from autotune.tuner.correction import Correction
from autotune.tuner.jobs import Jobs
from autotune.tuner.progress import ProgressTeller
from autotune.tuner.stop import StopRequest, wait_for
from autotune.units import format_seconds

RENEW_EVERY_S = 30.0
FINAL_PATIENCE = 2.0
"""Times the usual time of a final that one may take when the time of the search is spent."""
MAX_REPEATS = 3
"""Runs of one search that are thrown away for a disturbed device: one that always is must be measured as it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopEnd:
    """Why the trials of a study ended."""

    reason: str
    """One sentence."""
    is_limit: bool = False
    """The time or the number of trials ended them: more of it would have allowed more trials."""


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
        quiet: QuietWait | None = None,
        correct: Callable[[TrialResult, Jobs], Correction | None] = lambda result, jobs: None,
        start_afresh: Callable[[], bool] = lambda: False,
    ) -> None:
        self._start_afresh: Callable[[], bool] = start_afresh
        """Lets trials start without the probe's outputs, when the baseline fails; whether that makes a difference."""
        self._quiet, self._correct = quiet, correct
        self._progress = ProgressTeller(on_event)
        self._num_repeats = 0
        self._references: dict[str, LossReference] = {}
        """First losses in fp32, by what they follow from."""
        self._keeps_epochs = False
        """Whether the script failed in an epoch that went on past its end."""
        self._script_steps: int | None = None
        """Optimizer steps after which the script ends by itself, where a trial needed more."""
        self._study, self._search, self._jobs, self._runner = study, search, jobs, runner
        self._repository, self._budget, self._stop, self._on_event = repository, budget, stop, on_event
        self._owner = Owner.this_process()
        self._renewed_at = time.monotonic()
        self._others: frozenset[Owner] = frozenset()

    def recover(self) -> None:
        """Finishes what a killed tuner left half done: told twice is never, run twice is only what was interrupted."""
        for record in self._repository.trials(self._study):
            self._learn_losses(record.result)
            if record.result.outcome.is_finished:
                self._learn_duration(record.result)
        self._others = self._live_others()
        self._adopt()

    def _adopt(self) -> None:
        """Takes on what tuners that are dead had recorded and not told, or were running; between trials of our own."""
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
            if not self._budget.left_to_trials_s or not self._budget.allows_trial():
                return LoopEnd(reason=self._why_time_is_spent(), is_limit=True)
            proposal = self._search.ask({"owner": to_plain(self._owner)})
            if isinstance(proposal, SearchExhausted):
                return LoopEnd(reason=proposal.reason, is_limit=proposal.is_limit)
            if self._is_hopeless(self._trial(proposal)):
                return LoopEnd(reason="The script's own settings cannot be measured.")
        return LoopEnd(reason="It was asked to stop.")

    def measure(self, settings: Settings, *, is_final: bool, window_limit_s: float = math.inf) -> TrialResult:
        """Runs the script under these settings, and once more where its failure may not be theirs.

        Args:
            settings: To be measured.
            is_final: Measure longer, and never race.
            window_limit_s: Longest window of a final.
        """
        job = self._jobs.trial(settings, incumbent=self._incumbent(), is_final=is_final, window_limit_s=window_limit_s)
        # What is to be published was within the time once: its finals get as much, wherever the trials have left it.
        least_s = FINAL_PATIENCE * self._budget.final_s if is_final else 0.0
        first = self._undisturbed(job, least_s)
        is_again = self._has_learned_its_end(first) or _may_be_accident(job, first, is_final=is_final)
        if not is_again or self._stop.level or not self._budget.left_to_trials_s:
            return first
        note = f"A first run ended {first.outcome}: {first.why}"
        if first.start == "prepared":
            took = format_seconds(first.wall_s)
            note = f"A first run, from the script's own beginning on, ended {first.outcome} after {took}: {first.why}"
        self._on_event(Notice(message=f"The trial is run again. {note}", is_warning=False))
        if first.outcome.is_failed and job.settings == job.natural and self._search.history.best is None:
            self._start_afresh()
        second = self._undisturbed(job, least_s)
        return replace(second, notes=(*second.notes, note))

    def _undisturbed(self, job: TrialJob, least_s: float) -> TrialResult:
        """Runs the script when it is quiet; once more where the device was disturbed meanwhile."""
        result = self._run(job, least_s)
        disturbed = result.surroundings.device_disturbances if result.surroundings is not None else ()
        if not disturbed or not self._may_repeat(result):
            return result
        self._num_repeats += 1
        second = self._run(job, least_s)
        return replace(second, notes=(*second.notes, f"A first run was thrown away: {' '.join(disturbed)}"))

    def compute_rate(self, settings: Settings, factor: int) -> float | None:
        """Compute-only samples per second with a batch so many times as large; None where that cannot be had."""
        self._on_event(LargerBatchStarted(factor=factor))
        measurement = self._run(self._jobs.batch_probe(settings, factor)).measurement
        return measurement.compute_samples_per_second if measurement is not None else None

    def _run(self, job: TrialJob, least_s: float = 0.0) -> TrialResult:
        """Runs the script, for no longer than the time of the search lasts, or so long at least."""
        references = tuple(self._references.values())
        job = replace(job, references=references, keeps_epochs=self._keeps_epochs, script_steps=self._script_steps)
        found = self._wait_for_quiet()
        job = replace(job, ends_by=time.monotonic() + max(least_s, self._budget.left_to_trials_s))
        handle = self._runner.start(job)
        wait_for(handle, self._stop, now_and_then=lambda: self._look(handle))
        result = handle.result()
        # The words of the script's own error go into the talk, into notes, and into Optuna's tables.
        result = replace(result, reason=mask_text(result.reason))
        return found.written_with(result) if found is not None else result

    def _wait_for_quiet(self) -> Quiet | None:
        """How the machine was found; None where nobody waits for quiet."""
        if self._quiet is None:
            return None
        self._progress.waits()
        return self._quiet.wait(lambda: bool(self._stop.level))

    def _look(self, run: Run) -> None:
        """What is done beside a running trial."""
        self._renew()
        self._progress.look(run)

    def _may_repeat(self, result: TrialResult) -> bool:
        """Whether a disturbed run is worth another: not for ever, and not at the finals' cost."""
        has_time = self._budget.left_s > self._budget.reserve_s + result.wall_s
        return result.outcome is Outcome.OK and self._num_repeats < MAX_REPEATS and has_time and not self._stop.level

    def _has_learned_its_end(self, result: TrialResult) -> bool:
        """Whether the script failed past its epoch's end, or made too few steps: it is run again with that in mind."""
        if any(PAST_ITS_EPOCH in rank.notes for rank in result.ranks) and not self._keeps_epochs:
            self._keeps_epochs = True
            return True
        num_steps = min((rank.num_steps for rank in result.ranks), default=0)
        if result.reason != ENDED_EARLY or not 0 < num_steps < (self._script_steps or math.inf):
            return False
        self._script_steps = num_steps
        return True

    def _learn_losses(self, result: TrialResult) -> None:
        """What was trained in fp32 is what other number formats are compared with."""
        for reference in references_of(result):
            self._references.setdefault(reference.start_digest, reference)

    def _learn_duration(self, result: TrialResult) -> None:
        is_whole = result.outcome is Outcome.OK and result.measurement is not None
        window_s = result.measurement.window_s if is_whole and result.measurement is not None else None
        self._budget.trial_took(result.wall_s, window_s=window_s)

    def _trial(self, proposal: Proposal) -> Proposal:
        """Measures and records a trial; the proposal that it was recorded for."""
        self._on_event(TrialStarted(number=proposal.number, settings=proposal.settings, stage=proposal.stage))
        started_at = datetime.now(UTC)
        best_before = self._incumbent()
        result = self.measure(proposal.settings, is_final=False)
        if proposal.settings == self._search.natural:
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
        # An interruption that nobody here asked for is the host's: queued again, but not for ever.
        is_host_fault = not self._stop.level and self._budget.left_to_trials_s > 0
        self._search.tell(proposal.number, result, is_host_fault=is_host_fault)
        self._repository.mark_told(self._study, proposal.number)
        self._repository.add_spent(self._study, self._budget.unsaved_s())
        self._learn_duration(result)
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
        """The baseline under the settings that its own run showed, where the probe had taken them for others."""
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
            return "The time is spent, but for the finals."
        given = format_seconds(self._budget.total_s)
        return (
            f"The time of {given} was spent before one run of the script under its own settings was through: give the "
            "search more --time."
        )

    def _incumbent(self) -> float | None:
        best = self._search.history.best
        return best.samples_per_second if best is not None else None

    def _is_hopeless(self, proposal: Proposal) -> bool:
        """Whether the baseline, which everything is compared with, failed for another reason than memory."""
        baseline = self._search.history.baseline
        return baseline is not None and baseline.number == proposal.number and baseline.outcome.is_failed

    def _live_others(self) -> frozenset[Owner]:
        """Tuners of other machines that search the study too."""
        return frozenset(self._repository.live_owners(self._study, now=datetime.now(UTC))) - {self._owner}

    def _is_dead(self, attributes: dict[str, object]) -> bool:
        """Whether the tuner that began a trial is gone. Between trials of our own, ours count as begun by the dead.

        A trial that names no owner was just taken from the queue, by a tuner that was killed then if it is not one of
        the others.
        """
        owner = attributes.get("owner")
        if owner is None:
            return not self._others
        return owner not in [to_plain(other) for other in self._others]

    def _renew(self) -> None:
        if time.monotonic() - self._renewed_at >= RENEW_EVERY_S:
            self._renewed_at = time.monotonic()
            # A database that is away is no reason to end the trial: its result waits for it.
            with suppress(StoreError):
                self._repository.renew_lease(self._study, self._owner, now=datetime.now(UTC))


def _may_be_accident(job: TrialJob, result: TrialResult, *, is_final: bool) -> bool:
    """Whether a failure may be that of the start or of the host, so that another run tells.

    An error of the script under settings that we asked for is taken apart by the search, and not run a second time.
    """
    if is_final and result.outcome is Outcome.INTERRUPTED:
        return True  # A trial that was ended from outside is queued again by the search; for a final nobody does that.
    if result.outcome not in (Outcome.CRASHED, Outcome.TIMED_OUT):
        return False
    has_raised = any(rank.status is RankStatus.RAISED for rank in result.ranks)
    is_told = has_raised or result.outcome is Outcome.TIMED_OUT
    return is_final or job.settings == job.natural or result.start == "prepared" or not is_told
