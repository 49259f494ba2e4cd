"""One study: what to try next, and what Optuna is told of each ending.

Every trial, planned or sampled, is an ordinary trial of one Optuna study over the full static domains, so that a resume
needs the database alone, and Optuna's own tools show it as it is.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.search.history import FinishedTrial, History
from autotune.search.memory_model import MemoryModel
from autotune.search.plan import PlanFinished, plan
from autotune.search.sampler import TpeSampler
from autotune.search.walk import PlanLimits
from autotune.settings import Settings
from autotune.space.space import SPLIT, SearchSpace

MAX_REFUSALS = 20
"""Suggestions refused in a row before the neighbours of the best take their place."""
PATIENCE = 8
"""Sampled trials in a row without a gain beyond the noise, after which more of them are not worth their time."""
SAMPLED, NEIGHBOUR, RETRY = "sampled", "neighbour", "retry"
UNKNOWN_EXCESS = 0.02
"""Violation of the memory constraint where the need is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """Settings to measure as trial `number`, and why."""

    number: int
    settings: Settings
    stage: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchExhausted:
    """Nothing more is worth a trial."""

    reason: str


class Search:
    """Asks and tells for one study.

    Args:
        storage: Optuna's storage; None keeps the study in memory.
        study_name: Made when it is not there.
        space: What may be tried.
        limits: The machine and the cap.
        seed: Of the sampler.
        max_trials: Finished trials after which nothing is proposed.
        spend_all: Propose until `max_trials`, even when nothing more is expected of it.
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
        self._space, self._limits = space, limits
        self._max_trials, self._spend_all = max_trials, spend_all
        self._sampler = TpeSampler(space, seed)
        self._natural = space.natural.canonical(device_is_cpu=space.device_is_cpu)
        with _quiet():
            self._study = optuna.create_study(
                storage=storage,
                study_name=study_name,
                direction="maximize",
                load_if_exists=True,
                pruner=optuna.pruners.NopPruner(),
                sampler=optuna.samplers.RandomSampler(seed=seed),
            )

    @property
    def history(self) -> History:
        """The finished trials."""
        complete = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return History([_finished(trial) for trial in complete], self._natural)

    @property
    def baseline(self) -> FinishedTrial | None:
        """The trial of the script's own settings."""
        return self.history.baseline

    @property
    def num_finished(self) -> int:
        """Trials that count against the budget."""
        return len(self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))

    @property
    def num_gated(self) -> int:
        """Suggestions that were not run."""
        return len(self._study.get_trials(deepcopy=False, states=(TrialState.PRUNED,)))

    def ask(self, attrs: Mapping[str, Any] | None = None) -> Proposal | SearchExhausted:
        """The next trial, begun in the study under its number; or why there is none.

        Args:
            attrs: Kept with the trial, for instance who owns it.
        """
        if self.num_finished >= self._max_trials:
            return SearchExhausted(reason=f"All {self._max_trials} trials are done.")
        if self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            return self._begin(None, RETRY, attrs)
        history = self.history
        planned = plan(history, self._space, self._limits)
        if not isinstance(planned, PlanFinished):
            return self._begin(planned.settings, planned.stage, attrs)
        if not self._spend_all and self._is_enough(history):
            return SearchExhausted(reason="Nothing more is expected beyond the noise.")
        suggested = self._suggest(history)
        if suggested is None:
            return SearchExhausted(reason="Every setting that fits was tried.")
        return self._begin(*suggested, attrs)

    def tell(self, number: int, result: TrialResult) -> None:
        """Tells Optuna how a trial ended; a trial that it knows as finished already is left alone."""
        trial = self._study.get_trials(deepcopy=False)[number]
        if trial.state.is_finished():
            return
        live = optuna.trial.Trial(self._study, trial._trial_id)
        if result.outcome is Outcome.INTERRUPTED:
            self._requeue(trial)
            self._study.tell(number, state=TrialState.FAIL)
            return
        constraints = _constraints(result, self._limits.cap_bytes)
        live.set_user_attr("result", {**_attributes(result), "constraints": constraints})
        for name, violation in constraints.items():
            live.set_constraint(name, violation)
        with _quiet():
            self._study.tell(number, _value(result))

    def reap(self, is_dead: Callable[[dict[str, Any]], bool]) -> tuple[int, ...]:
        """Queues again what dead owners left running; the numbers of those trials."""
        reaped = []
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if is_dead(dict(trial.user_attrs)):
                if "settings" in trial.user_attrs:
                    self._requeue(trial)
                with _quiet():
                    self._study.tell(trial.number, state=TrialState.FAIL)
                reaped.append(trial.number)
        return tuple(reaped)

    def finalists(self, num: int) -> tuple[FinishedTrial, ...]:
        """The best few, the baseline left out: those whose interval reaches the best one's rate."""
        history = self.history
        feasible = [trial for trial in history.feasible if trial.settings != self._natural]
        if not feasible or history.best is None:
            return ()
        best = history.best.samples_per_second or 0.0
        reaching = [
            trial
            for trial in feasible
            if (trial.samples_per_second or 0.0) * (1 + 2 * (trial.half_width_ratio or 0.0)) >= best
        ]
        return tuple(reaching[:num] or feasible[:1])

    def _is_enough(self, history: History) -> bool:
        """Whether the last sampled trials brought nothing beyond the noise."""
        sampled = [trial for trial in history.trials if trial.stage in (SAMPLED, NEIGHBOUR)]
        if len(sampled) < PATIENCE or history.best is None:
            return False
        first = sampled[-PATIENCE].number
        before = [trial.samples_per_second or 0.0 for trial in history.feasible if trial.number < first]
        gain = 1 + self._limits.noise_ratio
        return (history.best.samples_per_second or 0.0) <= max(before, default=0.0) * gain

    def _suggest(self, history: History) -> tuple[Settings, str] | None:
        running = self._running()
        memory = MemoryModel(history, self._space)
        suggestions = itertools.islice(self._sampler.suggestions(history.trials, running, ()), MAX_REFUSALS)
        for settings in suggestions:
            if self._may_run(settings, history, running, memory):
                return settings, SAMPLED
        best = history.best.settings if history.best is not None else self._natural
        for settings in self._sampler.neighbours(best):
            if self._may_run(settings, history, running, memory):
                return settings, NEIGHBOUR
        return None

    def _may_run(self, settings: Settings, history: History, running: list[Settings], memory: MemoryModel) -> bool:
        if settings in history or settings in running or self._space.why_not(settings) is not None:
            return False
        reason = memory.ruled_out(settings, self._limits.cap_bytes)
        if reason is not None:
            self._gate(settings, reason)
        return reason is None

    def _gate(self, settings: Settings, reason: str) -> None:
        """Notes in the study that settings were not run."""
        params = self._space.params(settings)
        trial = optuna.trial.create_trial(
            params=params,
            distributions=self._distributions(),
            state=TrialState.PRUNED,
            user_attrs={"settings": settings.to_dict(), "gated": True, "reason": reason},
        )
        known = self._study.get_trials(deepcopy=False, states=(TrialState.PRUNED,))
        if all(other.params != params for other in known):
            self._study.add_trial(trial)

    def _running(self) -> list[Settings]:
        running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return [Settings.from_dict(trial.user_attrs["settings"]) for trial in running if "settings" in trial.user_attrs]

    def _begin(self, settings: Settings | None, stage: str, attrs: Mapping[str, Any] | None) -> Proposal:
        """Begins a trial; without settings the first of the queue."""
        if settings is None:
            return self._begin_queued(stage, attrs)
        nonce = uuid.uuid4().hex
        running = optuna.trial.create_trial(
            state=TrialState.RUNNING,
            params=self._space.params(settings),
            distributions=self._distributions(),
            user_attrs={"settings": settings.to_dict(), "stage": stage, "nonce": nonce, **(attrs or {})},
        )
        # One transaction, where asking with fixed parameters takes one per parameter.
        self._study.add_trial(running)
        trials = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        number = next(trial.number for trial in reversed(trials) if trial.user_attrs.get("nonce") == nonce)
        return Proposal(number=number, settings=settings, stage=stage)

    def _begin_queued(self, stage: str, attrs: Mapping[str, Any] | None) -> Proposal:
        with _quiet():
            trial = self._study.ask(self._distributions())
        settings = self._space.settings(trial.params)
        stage = str(trial.user_attrs.get("stage", stage))
        for name, value in {"settings": settings.to_dict(), "stage": stage, **(attrs or {})}.items():
            trial.set_user_attr(name, value)
        return Proposal(number=trial.number, settings=settings, stage=stage)

    def _requeue(self, trial: FrozenTrial) -> None:
        stage = trial.user_attrs.get("stage", RETRY)
        with _quiet():
            self._study.enqueue_trial(trial.params, user_attrs={"stage": stage, "retry_of": trial.number})

    def _distributions(self) -> dict[str, BaseDistribution]:
        return {
            name: IntDistribution(0, len(values) - 1) if name == SPLIT else CategoricalDistribution(values)
            for name, values in self._space.domains.items()
        }


def _finished(trial: FrozenTrial) -> FinishedTrial:
    attributes = trial.user_attrs["result"]
    return FinishedTrial(
        number=trial.number,
        settings=Settings.from_dict(trial.user_attrs["settings"]),
        stage=str(trial.user_attrs.get("stage", "")),
        outcome=Outcome(attributes["outcome"]),
        samples_per_second=attributes.get("samples_per_second"),
        peak_memory_bytes=attributes.get("peak_memory_bytes"),
        compute_samples_per_second=attributes.get("compute_samples_per_second"),
        data_wait_fraction=attributes.get("data_wait_fraction"),
        half_width_ratio=attributes.get("half_width_ratio"),
    )


def _attributes(result: TrialResult) -> dict[str, Any]:
    """What the plan needs of a trial, kept with it; the raw blocks are in our own tables."""
    measurement = result.measurement
    attributes: dict[str, Any] = {
        "outcome": result.outcome.value,
        "reason": result.reason,
        "peak_memory_bytes": result.peak_memory_bytes,
        "raced_out": result.outcome is Outcome.RACED_OUT,
    }
    if measurement is not None:
        rate = measurement.samples_per_second
        attributes.update(
            samples_per_second=measurement.high if result.outcome is Outcome.RACED_OUT else rate,
            compute_samples_per_second=measurement.compute_samples_per_second,
            data_wait_fraction=measurement.data_wait_fraction,
            half_width_ratio=(measurement.high - measurement.low) / 2 / rate,
        )
    return attributes


def _value(result: TrialResult) -> float:
    measurement = result.measurement
    if measurement is None:
        return 0.0
    return measurement.high if result.outcome is Outcome.RACED_OUT else measurement.samples_per_second


def _constraints(result: TrialResult, cap_bytes: int) -> dict[str, float]:
    """`memory` and `valid`, always both and in this order; above 0 is infeasible."""
    peak = result.peak_memory_bytes
    memory = peak / cap_bytes - 1 if peak is not None else -UNKNOWN_EXCESS
    if result.outcome.is_infeasible:
        memory = max(memory, UNKNOWN_EXCESS)
    return {"memory": memory, "valid": 1.0 if result.outcome.is_failed else -1.0}


class _quiet:  # noqa: N801 -- reads as a statement
    """Keeps Optuna's own lines off the terminal for the length of one call."""

    def __enter__(self) -> None:
        self._verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)

    def __exit__(self, *_: object) -> None:
        optuna.logging.set_verbosity(self._verbosity)
