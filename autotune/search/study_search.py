"""The search of one study: proposes trials, records results, decides when to stop, and names the finalists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from optuna.storages import BaseStorage

from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.search.after_plan import AfterPlan
from autotune.search.beside_load import first_above_suspicion, with_alternative, without_changes_for_load
from autotune.search.blame import FailingCombination, Investigation, investigate, without
from autotune.search.forecast import forecast
from autotune.search.history import FinishedTrial, History
from autotune.search.memory_model import MemoryModel
from autotune.search.optuna_values import verdict
from autotune.search.plan import COMPILE_STAGE, PlanFinished, plan
from autotune.search.plan_state import Candidate, PlanLimits
from autotune.search.prices import FREE, Prices
from autotune.search.sampler import TpeSampler
from autotune.search.search_stopping import (
    budget_spent,
    finalists,
    gain_of_a_minute,
    is_worth_a_minute,
    why_a_minute_ends,
    why_nothing_to_gain,
    why_patience_ends,
)
from autotune.search.simpler import simplest, without_useless_changes
from autotune.search.study_trials import SETTINGS_ATTR, StudySnapshot, StudyTrials
from autotune.search.worker_stages import USUAL_STAGE
from autotune.settings import CompileMode, Settings
from autotune.settings.compile_mode import GRAPHS, build_of
from autotune.space.search_space import SearchSpace

NUM_LAST = 4
"""Last trials of a budget, used to find the smallest memory of the fastest settings if the space varies it, and to take
back changes without a gain."""

LEAST_COMPILED_TRIALS = 2
"""Least time left for a compiled trial of the plan, in such trials. Where every trial and every final starts anew, a
compilation may cost more than other trials gain. For CUDA graphs time for a single trial suffices: the plan tries
graphs only on an idle device, and no other change gains as much on an idle device."""

LEAST_BEFORE_LAST = 8
"""Fewest trials before the last: a search with fewer spends its trials on gains."""

ALL_TRIED = "Every setting worth a trial was tried."

TIME_SPENT = "The time left is too short for another trial and its finals."


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """A running trial: settings to measure now."""

    number: int
    """Optuna's trial number; `Search.tell` expects the result under this number."""
    settings: Settings
    stage: str
    gain_ratio_per_minute: float | None = None
    """Expected gain of the next minute of trials as a share of the best rate; None while unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchExhausted:
    """The end of the search: nothing more to try."""

    reason: str
    is_limit: bool = False
    """True when the number of trials ended the search; False when no setting is worth a trial."""


class Search:
    """The search of one study: first the plan, then the trials with the largest expected gain, under the memory model.

    Several tuners may search the same study at once.

    Args:
        storage: Storage of the study; None keeps the study in memory.
        study_name: Name of the study, created if missing, resumed otherwise.
        space: The settings to search.
        limits: The machine.
        seed: Seed of the sampler; the plan has none.
        max_trials: Trials with an ending that counts, at least 1.
        spend_all: True to spend all trials; False to stop when no gain is expected.
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
        self._storage, self._study_name, self._seed = storage, study_name, seed
        self._limits = limits
        self._max_trials = max_trials
        self._spend_all = spend_all
        self._further_rates: dict[int, Sequence[float]] = {}
        """Rates of finals, by the number of the trial with the same settings."""
        self._infeasible: dict[int, Outcome] = {}
        """Endings of finals over the memory limits, by the number of the trial with the same settings."""
        self._decided_until = -1
        """Number of the last trial before the latest finals."""
        self._open(space)

    def _open(self, space: SearchSpace) -> None:
        self._whole_space = self._space = space
        """The whole space, and the space without guilty settings."""
        self._script_settings = space.script_settings.canonical(device_is_cpu=space.device_is_cpu)
        about = {"memory_cap_bytes": self._limits.cap_bytes, SETTINGS_ATTR: self._script_settings.to_short_dict()}
        self._trials = StudyTrials(self._storage, self._study_name, space, {"made_by": "autotune", **about})
        self._combinations: tuple[FailingCombination, ...] = ()
        self._after_plan = AfterPlan(self._trials, TpeSampler(space, self._seed), space, self._limits)
        self._finished_plan: PlanFinished | None = None

    @property
    def script_settings(self) -> Settings:
        """The script's own settings, canonical."""
        return self._script_settings

    def can_begin_anew(self, number: int) -> bool:
        """True when nothing was measured or queued, and no trial but `number` is running."""
        return not self._trials.has_other_trials(number)

    def begin_anew(self, space: SearchSpace) -> None:
        """Restarts with another baseline in a study without a trial; call only when `can_begin_anew`."""
        self._open(space)

    def ask(self, attrs: Mapping[str, Any] | None = None, prices: Prices = FREE) -> Proposal | SearchExhausted:
        """The next trial, started in the database.

        The order is: queued settings, trials to explain failures, one trial that can be published beside load, the
        steps of the plan, and the largest expected gain per second.

        Args:
            attrs: Further user attributes of the trial: its owner and lease.
            prices: Time of trials, and time left.
        """
        attrs = attrs or {}
        while True:
            snapshot = self._trials.snapshot()
            if self._num_left(snapshot) <= 0:
                return SearchExhausted(reason=budget_spent(self._max_trials), is_limit=True)
            investigation = self._investigate(snapshot)
            queued = self._trials.start_queued(attrs, self._max_trials) if snapshot.has_queued else None
            if queued is not None:
                number, candidate = queued
                return Proposal(number=number, settings=candidate.settings, stage=candidate.stage)
            next_candidate = investigation.next_trial or self._next(snapshot, prices)
            if isinstance(next_candidate, SearchExhausted):
                return next_candidate
            started = self._trials.start(next_candidate, attrs, self._max_trials)
            if started is not None:
                return Proposal(
                    number=started,
                    settings=next_candidate.settings,
                    stage=next_candidate.stage,
                    gain_ratio_per_minute=next_candidate.gain_ratio_per_minute,
                )

    def tell(self, number: int, result: TrialResult, *, is_host_fault: bool = False) -> None:
        """Records a trial's result, and queues an interrupted trial again.

        Args:
            number: Number of the proposal. A reaped trial is left unchanged.
            result: Ending of the trial.
            is_host_fault: True when the host, not the tuner's own end, interrupted the trial; after the third such
                interruption the settings are given up.
        """
        ending = verdict(result, self._limits.cap_bytes)
        if ending is None:
            self._trials.fail(number, result.reason, is_host_fault=is_host_fault)
        else:
            self._trials.finish(number, result, ending)

    def learn(
        self, rates: Mapping[int, Sequence[float]], infeasible: Mapping[int, Outcome], *, decided_until: int
    ) -> None:
        """Counts runs of finals without a gain as further measurements of their trials, before more trials.

        Args:
            rates: Rates of the runs in samples per second, by the number of the trial.
            infeasible: Endings of runs over the memory limits, by the number of the trial.
            decided_until: Number of the last trial before the finals.
        """
        self._further_rates, self._infeasible = dict(rates), dict(infeasible)
        self._decided_until = decided_until

    def reap(self, is_dead: Callable[[dict[str, Any]], bool]) -> tuple[int, ...]:
        """Fails the running trials whose owner is dead, and queues their settings again.

        Args:
            is_dead: Returns True for user attributes of a dead owner. A tuner killed while taking a trial from the
                queue leaves attributes without an owner.

        Returns:
            Numbers of the reaped trials.
        """
        return self._trials.reap(is_dead)

    def take_over(self, settings: Settings, stage: str, result: TrialResult, *, source: str) -> int | None:
        """Adds a finished trial of another study, and gives its number here; None when it does not fit.

        Args:
            settings: Measured settings.
            stage: Stage that asked for them.
            result: Ending, judged by this study's cap.
            source: Identity of the trial, so that it is added only once.
        """
        ending = verdict(result, self._limits.cap_bytes)
        canonical = settings.canonical(device_is_cpu=self._space.device_is_cpu)
        if ending is None or self._whole_space.why_not(canonical) is not None:
            return None
        return self._trials.add_finished(Candidate(settings=canonical, stage=stage), result, ending, source)

    def is_held(self, number: int, is_dead: Callable[[dict[str, Any]], bool]) -> bool:
        """True when a trial is running and its owner is not dead (`is_dead` as in `reap`)."""
        return self._trials.is_held(number, is_dead)

    @property
    def history(self) -> History:
        """Finished trials, read from the database, without gated trials."""
        return self._history(self._trials.snapshot())

    @property
    def num_finished(self) -> int:
        """Trials with an ending that counts."""
        return _num_finished(self._trials.snapshot())

    @property
    def num_gated(self) -> int:
        """Suggestions never run because their predicted memory is over the cap."""
        snapshot = self._trials.snapshot()
        tried = {trial.settings for trial in snapshot.finished}
        return sum(settings not in tried for settings in snapshot.gated.values())

    @property
    def baseline(self) -> FinishedTrial | None:
        """The trial of the script's own settings."""
        return self.history.baseline

    def fits(self, settings: Settings) -> bool:
        """True when settings, inside or outside the space, are likely to stay under the cap, or nothing is known."""
        model = MemoryModel(self.history, self._space, self._limits.cap_bytes, self._limits.fixed_bytes)
        return (model.ruled_out(settings) or model.unlikely(settings)) is None

    def finalists(self, num: int) -> tuple[FinishedTrial, ...]:
        """At most `num` trials that may be the fastest, the fastest first, without the baseline.

        Beside the fastest stand the simplest settings of nearly its rate, and the settings of an expert: usual gains,
        tried first and chosen among none.
        """
        history = self.history
        if history.best is None:
            return ()
        expected, noise_ratio = forecast(history), self._limits.noise_ratio
        found = finalists(
            history,
            expected.rates(history.feasible),
            noise_ratio=noise_ratio,
            extra_noise_ratio=expected.extra_noise_ratio,
        )
        simple = simplest(found[0], history, noise_ratio=noise_ratio) if found else None
        usual = next((trial for trial in history.feasible if trial.stage == USUAL_STAGE), None)
        ordered = dict.fromkeys(trial for trial in (*found[:1], simple, usual, *found[1:]) if trial is not None)
        ordered = dict.fromkeys(with_alternative(list(ordered), history))
        # Anyone may have written into Optuna's tables: only settings in the space are run.
        return tuple(
            trial
            for trial in ordered
            if self._space.why_not(trial.settings) is None and trial.settings != history.script_settings
        )[:num]

    def _investigate(self, snapshot: StudySnapshot) -> Investigation:
        """Explains the failed trials, and takes the guilty settings out of the space."""
        workers = [int(value) for value in self._whole_space.allowed.get("num_workers", ()) if value]
        found = investigate(
            self._history(snapshot),
            device_is_cpu=self._whole_space.device_is_cpu,
            running=snapshot.running,
            may_be_tried=lambda settings: self._whole_space.why_not(settings) is None,
            least_workers=min(workers, default=None),
        )
        if found.combinations != self._combinations:
            self._combinations, self._finished_plan = found.combinations, None
            self._space = self._trials.space = without(self._whole_space, found.combinations)
            self._after_plan = AfterPlan(self._trials, TpeSampler(self._space, self._seed), self._space, self._limits)
        return found

    def _history(self, snapshot: StudySnapshot) -> History:
        return History(
            map(self._with_finals, snapshot.finished), self._script_settings, decided_until=self._decided_until
        )

    def _with_finals(self, trial: FinishedTrial) -> FinishedTrial:
        """The trial as known after the finals that were learned."""
        outcome = self._infeasible.get(trial.number)
        if outcome is not None and trial.settings != self._script_settings:
            return replace(trial, outcome=outcome, samples_per_second=None)
        return trial.with_runs(self._further_rates.get(trial.number, ()))

    def _with_running(self, snapshot: StudySnapshot) -> History:
        """The history, with trials running in other tuners counted as tried and failed."""
        last = max((trial.number for trial in snapshot.finished), default=0)
        elsewhere = [_unmeasured(settings, last + 1) for settings in snapshot.running]
        return self._history(snapshot).with_trials(elsewhere)

    def _planned(self, snapshot: StudySnapshot, limits: PlanLimits) -> Candidate | PlanFinished:
        """The plan's next step."""
        history = self._with_running(snapshot)
        if self._finished_plan is None or not self._finished_plan.holds_for(history):
            step = plan(history, self._space, limits)
            self._finished_plan = step if isinstance(step, PlanFinished) else None
            return step
        return self._finished_plan

    def _planned_in_time(self, snapshot: StudySnapshot, prices: Prices) -> Candidate | PlanFinished:
        """The plan's next step; without time for a compiled model, the quickest build, or the step after the build."""
        limits = replace(self._limits, can_go_on=prices.can_go_on)
        planned = self._planned(snapshot, limits)
        for modes in ((CompileMode.REGIONAL,), ()):
            if isinstance(planned, PlanFinished) or planned.stage not in (USUAL_STAGE, COMPILE_STAGE):
                break
            if not self._builds(planned) or _is_affordable(planned, prices):
                break
            planned = plan(self._with_running(snapshot), self._space, replace(limits, early_builds=modes))
        return planned

    def _builds(self, planned: Candidate) -> bool:
        """Whether a step of the plan compiles a model that the script does not compile."""
        return planned.settings.compile and not self._script_settings.compile

    def _next(self, snapshot: StudySnapshot, prices: Prices) -> Candidate | SearchExhausted:
        """The next candidate after these trials, or the reason to stop."""
        history = self._history(snapshot)
        device_is_cpu, noise_ratio = self._space.device_is_cpu, self._limits.noise_ratio
        outlook = cache(lambda: self._after_plan.outlook(snapshot, history.informative, prices))
        if not self._spend_all:
            reason = why_nothing_to_gain(
                history,
                lambda: _expected_gain(outlook()),
                device_is_cpu=device_is_cpu,
                noise_ratio=noise_ratio,
                is_worth_a_minute=lambda gain: is_worth_a_minute(prices.per_minute(gain, self._script_settings)),
            )
            if reason is not None:
                return SearchExhausted(reason=reason)
        num_left = self._num_left(snapshot)
        if history.best is not None:
            num_left = min(num_left, int(min(num_left, prices.num_affordable(history.best.settings))))
        is_last = num_left <= NUM_LAST and len(history) >= LEAST_BEFORE_LAST
        last = self._last(snapshot, prices) if is_last else None
        if last is not None:
            return last
        calm = first_above_suspicion(self._with_running(snapshot), self._space)
        if calm is not None and prices.affords(calm.settings):
            return calm
        planned = self._planned_in_time(snapshot, prices)
        # The second trial may pass the time, because one trial compares nothing; but not by a compilation.
        if isinstance(planned, Candidate) and (
            (len(history) < 2 and not self._builds(planned)) or _is_affordable(planned, prices)
        ):
            return planned
        candidate = outlook()
        ending = self._why_to_end(history, candidate, prices)
        if ending is None and candidate is not None:
            return replace(candidate, gain_ratio_per_minute=gain_of_a_minute(history, candidate, prices))
        return self._last(snapshot, prices) or ending or SearchExhausted(reason=ALL_TRIED)

    def _why_to_end(self, history: History, candidate: Candidate | None, prices: Prices) -> SearchExhausted | None:
        """The reason to end before the candidate with the largest expected gain; None while the gain is worth it."""
        if candidate is None:
            return SearchExhausted(reason=ALL_TRIED)
        if not prices.affords(candidate.settings):
            return SearchExhausted(reason=TIME_SPENT, is_limit=True)
        if self._spend_all:
            return None
        gain_ratio = candidate.expected_gain_ratio
        reason = why_patience_ends(history, gain_ratio, noise_ratio=self._limits.noise_ratio)
        reason = reason or why_a_minute_ends(history, candidate, prices)
        return SearchExhausted(reason=reason) if reason is not None else None

    def _last(self, snapshot: StudySnapshot, prices: Prices) -> Candidate | None:
        """The next trial before the finals: the winner without changes of no use."""
        history = self._with_running(snapshot)
        candidate = without_changes_for_load(history, self._space)
        candidate = candidate or without_useless_changes(history, self._space, self._limits)
        return candidate if candidate is not None and prices.affords(candidate.settings) else None

    def _num_left(self, snapshot: StudySnapshot) -> int:
        return self._max_trials - len(snapshot.running) - _num_finished(snapshot)


def _is_affordable(planned: Candidate, prices: Prices) -> bool:
    """True when the time left suffices for a step of the plan."""
    is_doubtful = planned.stage == COMPILE_STAGE and build_of(planned.settings) not in GRAPHS
    num_trials = LEAST_COMPILED_TRIALS if is_doubtful else 1
    return prices.num_affordable(planned.settings) >= num_trials


def _num_finished(snapshot: StudySnapshot) -> int:
    return sum(trial.outcome is not Outcome.INTERRUPTED for trial in snapshot.finished)


def _expected_gain(candidate: Candidate | None) -> float | None:
    """Expected gain over the best trial so far; 0 without a candidate, None when unknown."""
    return 0.0 if candidate is None else candidate.expected_gain_ratio


def _unmeasured(settings: Settings, number: int) -> FinishedTrial:
    return FinishedTrial(number=number, settings=settings, stage="", outcome=Outcome.INTERRUPTED)
