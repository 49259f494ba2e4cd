"""The search of one study: what to try next, what came of it, when to stop, and what may win."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from optuna.storages import BaseStorage

from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.search.bounds import Bounds
from autotune.search.effects import Effects
from autotune.search.history import FinishedTrial, History
from autotune.search.memory_model import MemoryModel
from autotune.search.plan import PlanFinished, plan
from autotune.search.sampler import TpeSampler
from autotune.search.stopping import NEIGHBOUR_STAGE, SAMPLED_STAGE, early_stop, finalists
from autotune.search.study_trials import StudySnapshot, StudyTrials
from autotune.search.verdict import verdict
from autotune.search.walk import Candidate, PlanLimits
from autotune.settings import Settings
from autotune.space.space import SearchSpace

MAX_REFUSALS = 20
"""Suggestions of the sampler that are refused in a row before the neighbourhood of the best is searched instead."""

MAX_REFUSALS_AGAIN = 5
"""The same where that was so at the last trial already: one trial more rarely changes the sampler's mind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """A running trial: settings to measure now."""

    number: int
    """Optuna's trial number; the result is told under it."""
    settings: Settings
    stage: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchExhausted:
    """There is nothing more to try."""

    reason: str


class Search:
    """The search of one study: the plan while it lasts, then TPE, all of it under the memory model.

    Several tuners may have one of these on the same study.

    Args:
        storage: Where the study is; None keeps it in memory.
        study_name: Made when there is none of that name, resumed otherwise.
        space: What may be tried.
        limits: The machine.
        seed: Of the sampler; the plan has none.
        max_trials: Trials with an ending that counts, at least 1.
        spend_all: Whether the trials are spent in full, rather than until nothing more is to be expected.
    """

    def __init__(
        self,
        storage: BaseStorage | None,
        study_name: str,
        space: SearchSpace,
        limits: PlanLimits,
        *,
        seed: int,
        max_trials: int,
        spend_all: bool,
    ) -> None:
        self._space = space
        self._limits = limits
        self._max_trials = max_trials
        self._spend_all = spend_all
        self._natural = space.natural.canonical(device_is_cpu=space.device_is_cpu)
        self._trials = StudyTrials(storage, study_name, space)
        self._sampler = TpeSampler(space, seed)

    def ask(self, attrs: Mapping[str, Any] | None = None) -> Proposal | SearchExhausted:
        """The next trial, started in the database; queued settings come first, then the plan, then the sampler.

        Args:
            attrs: What else the trial's user attributes should hold: its owner and lease.
        """
        attrs = attrs or {}
        while True:
            snapshot = self._trials.snapshot()
            if len(snapshot.running) + _num_finished(snapshot) >= self._max_trials:
                return SearchExhausted(reason=f"The {self._max_trials} trials of the budget are spent.")
            queued = self._trials.start_queued(attrs)
            if queued is not None:
                number, candidate = queued
                return Proposal(number=number, settings=candidate.settings, stage=candidate.stage)
            next_candidate = self._next(snapshot)
            if isinstance(next_candidate, SearchExhausted):
                return next_candidate
            started = self._trials.start(next_candidate, attrs)
            if started is not None:
                return Proposal(number=started, settings=next_candidate.settings, stage=next_candidate.stage)

    def tell(self, number: int, result: TrialResult, *, is_host_fault: bool = False) -> None:
        """Records how a trial ended; one that was interrupted is queued again.

        Args:
            number: Of the proposal. A trial that was reaped meanwhile is left as it is.
            result: Its ending.
            is_host_fault: An interruption was the host's fault and not the tuner's own end; after the third the
                settings are given up.
        """
        told = verdict(result, self._limits.cap_bytes)
        if told is None:
            self._trials.fail(number, result.reason, is_host_fault=is_host_fault)
        else:
            self._trials.finish(number, result, told)

    def reap(self, is_dead: Callable[[dict[str, Any]], bool]) -> tuple[int, ...]:
        """Fails the running trials whose owner is dead and queues their settings again.

        Args:
            is_dead: Whether the owner named in a trial's user attributes is dead. A trial whose tuner was killed while
                it took it from the queue names none.

        Returns:
            Numbers of the trials that were reaped.
        """
        return self._trials.reap(is_dead)

    def take_over(self, settings: Settings, stage: str, result: TrialResult, *, source: str) -> int | None:
        """The number of a finished trial of another study, added to this one; None where it does not fit.

        Args:
            settings: What was measured.
            stage: Why it was.
            result: How it ended, judged by this study's cap.
            source: Names the trial: one that was added before is not added again.
        """
        told = verdict(result, self._limits.cap_bytes)
        canonical = settings.canonical(device_is_cpu=self._space.device_is_cpu)
        if told is None or self._space.why_not(canonical) is not None:
            return None
        return self._trials.add_finished(Candidate(settings=canonical, stage=stage), result, told, source)

    def is_held(self, number: int, is_dead: Callable[[dict[str, Any]], bool]) -> bool:
        """Whether a trial is running, and its owner is not dead; otherwise as in `reap`."""
        return self._trials.is_held(number, is_dead)

    def should_stop(self) -> str | None:
        """Why no further trial is worth its time, as one sentence; None while one may be. The clock is the tuner's."""
        snapshot = self._trials.snapshot()
        if _num_finished(snapshot) >= self._max_trials:
            return f"The {self._max_trials} trials of the budget are spent."
        if self._spend_all or not isinstance(self._planned(snapshot), PlanFinished):
            return None
        return self._early_stop(self._history(snapshot))

    @property
    def history(self) -> History:
        """Finished trials, read from the database; gated ones are not among them."""
        return self._history(self._trials.snapshot())

    @property
    def num_finished(self) -> int:
        """Trials with an ending that counts."""
        return _num_finished(self._trials.snapshot())

    @property
    def num_gated(self) -> int:
        """Suggestions that were not run, because they need too much memory by what is known."""
        return len(self._trials.snapshot().gated)

    @property
    def baseline(self) -> FinishedTrial | None:
        """The trial of the script's own settings."""
        return self.history.baseline

    def fits(self, settings: Settings) -> bool:
        """Whether settings, in the space or not, are likely to stay under the cap; True while nothing is known."""
        model = MemoryModel(self.history, self._space, self._limits.cap_bytes, self._limits.fixed_bytes)
        return (model.ruled_out(settings) or model.unlikely(settings)) is None

    def finalists(self, num: int) -> tuple[FinishedTrial, ...]:
        """At most `num` trials that may be the fastest, the fastest first, without the baseline."""
        return finalists(self.history, num, noise_ratio=self._limits.noise_ratio)

    def _history(self, snapshot: StudySnapshot) -> History:
        return History(snapshot.finished, self._natural)

    def _planned(self, snapshot: StudySnapshot) -> Candidate | PlanFinished:
        """The plan's next step; what another tuner measures at this moment counts as tried and failed."""
        last = max((trial.number for trial in snapshot.finished), default=0)
        elsewhere = [_unmeasured(settings, last + 1) for settings in snapshot.running]
        return plan(self._history(snapshot).with_trials(elsewhere), self._space, self._limits)

    def _next(self, snapshot: StudySnapshot) -> Candidate | SearchExhausted:
        planned = self._planned(snapshot)
        if isinstance(planned, Candidate):
            return planned
        history = self._history(snapshot)
        reason = None if self._spend_all else self._early_stop(history)
        if reason is not None:
            return SearchExhausted(reason=reason)
        candidate = self._sampled(snapshot, history)
        if candidate is None:
            return SearchExhausted(reason="Every setting that could be faster was tried.")
        return candidate

    def _sampled(self, snapshot: StudySnapshot, history: History) -> Candidate | None:
        """What TPE suggests, unless it repeats itself; then the nearest neighbour of the best that is new."""
        refusals = _Refusals(snapshot, history, self._space, self._limits)
        was_repeating = bool(history.trials) and history.trials[-1].stage == NEIGHBOUR_STAGE
        suggestions = self._sampler.suggestions(history.trials, snapshot.running, snapshot.gated)
        for settings in islice(suggestions, MAX_REFUSALS_AGAIN if was_repeating else MAX_REFUSALS):
            candidate = Candidate(settings=settings, stage=SAMPLED_STAGE)
            if not refusals.is_new(settings) or refusals.is_pointless(settings):
                continue
            reason = refusals.memory_reason(settings)
            if reason is None:
                return candidate
            self._trials.gate(candidate, reason)
            refusals.known.add(settings)
        centre = history.best.settings if history.best is not None else self._natural
        nearest = self._nearest_new(centre, refusals)
        return None if nearest is None else Candidate(settings=nearest, stage=NEIGHBOUR_STAGE)

    def _nearest_new(self, centre: Settings, refusals: _Refusals) -> Settings | None:
        """The nearest new settings that fit and may be faster; where a budget is to be spent, also slower ones."""
        reserve = None
        for settings in self._sampler.neighbours(centre):
            is_pointless = refusals.is_pointless(settings)
            if is_pointless and (reserve is not None or not self._spend_all):
                continue
            if refusals.is_new(settings) and refusals.memory_reason(settings) is None:
                if not is_pointless:
                    return settings
                reserve = settings
        return reserve

    def _early_stop(self, history: History) -> str | None:
        return early_stop(history, device_is_cpu=self._space.device_is_cpu, noise_ratio=self._limits.noise_ratio)


class _Refusals:
    """Why settings are not sampled."""

    def __init__(self, snapshot: StudySnapshot, history: History, space: SearchSpace, limits: PlanLimits) -> None:
        self.known = {trial.settings for trial in snapshot.finished} | {*snapshot.running, *snapshot.gated}
        self._space = space
        self._limits = limits
        self._bounds = Bounds(history, device_is_cpu=space.device_is_cpu)
        self._memory = MemoryModel(history, space, limits.cap_bytes, limits.fixed_bytes)
        self._effects = Effects(history, space)
        self._best = history.best

    def is_new(self, settings: Settings) -> bool:
        """Whether these settings may be tried, were not, and are not being tried."""
        return settings not in self.known and self._space.why_not(settings) is None

    def is_pointless(self, settings: Settings) -> bool:
        """Whether these settings cannot be faster than the best, as far as the trials tell."""
        if self._best is None:
            return False
        bound = self._bounds.upper_bound(settings)
        if bound is not None and bound < (self._best.samples_per_second or 0.0):
            return True
        return self._effects.hopeless_change(self._best.settings, settings) is not None

    def memory_reason(self, settings: Settings) -> str | None:
        """Why these settings are not run under the cap; None where they may be."""
        return self._memory.ruled_out(settings) or self._memory.unlikely(settings)


def _num_finished(snapshot: StudySnapshot) -> int:
    return sum(trial.outcome is not Outcome.INTERRUPTED for trial in snapshot.finished)


def _unmeasured(settings: Settings, number: int) -> FinishedTrial:
    return FinishedTrial(number=number, settings=settings, stage="", outcome=Outcome.INTERRUPTED)
