"""Any Optuna sampler in place of our own search, for comparison with the same baseline, space, constraints and budget.

The sampler gets the same treatment as our own: numbers are encoded as ranks, endings carry the same constraints, and no
trial goes to settings that are known, illegal, or ruled out by the memory model.
"""

from __future__ import annotations

import random
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import Trial, TrialState

from autotune.model.result import TrialResult
from autotune.search.history import FinishedTrial, History
from autotune.search.memory_model import MemoryModel
from autotune.search.optuna_logging import quiet
from autotune.search.optuna_values import verdict
from autotune.search.plan_state import PlanLimits, ordered
from autotune.search.search_stopping import SAMPLED_STAGE, budget_spent, finalists
from autotune.search.study_search import Proposal, SearchExhausted
from autotune.settings import Settings
from autotune.space.search_space import SearchSpace

MAX_REFUSALS = 20
"""Refused suggestions in a row before settings are drawn at random."""
MAX_DRAWS = 2000
"""Refused random settings in a row before the space counts as exhausted."""


class SamplerSearch:
    """A search by one Optuna sampler, in memory; `ask` and `tell` work as in `Search`.

    Args:
        sampler: Optuna sampler, seeded by the caller.
        space: The settings to search.
        limits: The machine.
        seed: Seed of the random draws that replace a sampler's repeated suggestions.
        max_trials: Trials to spend, at least 1, including the baseline.
    """

    def __init__(
        self, sampler: BaseSampler, space: SearchSpace, limits: PlanLimits, *, seed: int, max_trials: int
    ) -> None:
        self._space, self._limits, self._max_trials = space, limits, max_trials
        self._script_settings = space.script_settings.canonical(device_is_cpu=space.device_is_cpu)
        self._values = {name: ordered(space.allowed[name]) for name in space.searched}
        self._distributions = {name: _distribution(values) for name, values in self._values.items()}
        self._random = random.Random(seed)
        self._running: dict[int, tuple[Trial | None, Settings]] = {}
        self._finished: list[FinishedTrial] = []
        with quiet():
            self._study = optuna.create_study(direction="maximize", sampler=sampler, pruner=optuna.pruners.NopPruner())

    @property
    def history(self) -> History:
        """Finished trials."""
        return History(self._finished, self._script_settings)

    @property
    def baseline(self) -> FinishedTrial | None:
        """The trial of the script's own settings."""
        return self.history.baseline

    def finalists(self, num: int) -> tuple[FinishedTrial, ...]:
        """At most `num` trials that may be the fastest, as `Search.finalists`."""
        return finalists(self.history, noise_ratio=self._limits.noise_ratio)[:num]

    def ask(self) -> Proposal | SearchExhausted:
        """The next trial: the baseline first, then the sampler's suggestions."""
        number = len(self._finished)
        if number >= self._max_trials:
            return SearchExhausted(reason=budget_spent(self._max_trials))
        if number == 0:
            return self._start(number, self._baseline_trial(), self._script_settings, "baseline")
        with quiet():
            suggested = self._suggested()
        if suggested is None:
            return SearchExhausted(reason="Every setting that is legal was tried.")
        return self._start(number, *suggested, SAMPLED_STAGE)

    def tell(self, number: int, result: TrialResult) -> None:
        """Records a trial's result."""
        trial, settings = self._running.pop(number)
        ending = verdict(result, self._limits.cap_bytes)
        if ending is None:
            raise ValueError("an interrupted trial says nothing; measure it again")
        if trial is not None:
            with quiet():
                for key, value in ending.constraints.items():
                    trial.set_constraint(key, value)
                self._study.tell(trial, ending.value)
        self._finished.append(_finished(number, settings, result))

    def _start(self, number: int, trial: Trial | None, settings: Settings, stage: str) -> Proposal:
        self._running[number] = trial, settings
        return Proposal(number=number, settings=settings, stage=stage)

    def _baseline_trial(self) -> Trial | None:
        """The baseline as a trial of the study; None when the ranges exclude the baseline."""
        params = self._encoded(self._script_settings)
        if params is None:
            return None
        with quiet():
            self._study.enqueue_trial(params)
            return self._study.ask(self._distributions)

    def _suggested(self) -> tuple[Trial, Settings] | None:
        history = self.history
        memory = MemoryModel(history, self._space, self._limits.cap_bytes)
        for attempt in range(MAX_REFUSALS + MAX_DRAWS):
            if attempt >= MAX_REFUSALS:
                drawn = self._settings({name: self._random.choice(self._values[name]) for name in self._values})
                if drawn in history:
                    continue
                self._study.enqueue_trial(self._encoded(drawn) or {})
            trial = self._study.ask(self._distributions)
            settings = self._settings(self._decoded(trial.params))
            is_legal = settings not in history and self._space.why_not(settings) is None
            if is_legal and memory.ruled_out(settings) is None:
                return trial, settings
            self._study.tell(trial, state=TrialState.PRUNED)
        return None

    # --- settings as the sampler sees them

    def _settings(self, params: dict[str, Any]) -> Settings:
        own = self._space.params(self._space.script_settings)
        fixed = {name: values[0] for name, values in self._space.allowed.items() if own[name] not in values}
        return self._space.settings({**own, **fixed, **params})

    def _decoded(self, params: dict[str, Any]) -> dict[str, Any]:
        return {
            name: self._values[name][value] if isinstance(self._distributions[name], IntDistribution) else value
            for name, value in params.items()
        }

    def _encoded(self, settings: Settings) -> dict[str, Any] | None:
        params = self._space.params(settings)
        if any(params[name] not in values for name, values in self._values.items()):
            return None
        return {
            name: values.index(params[name]) if isinstance(self._distributions[name], IntDistribution) else params[name]
            for name, values in self._values.items()
        }


def _distribution(values: tuple[Any, ...]) -> BaseDistribution:
    if any(isinstance(value, (str, bool)) for value in values):
        return CategoricalDistribution(values)
    return IntDistribution(0, len(values) - 1)


def _finished(number: int, settings: Settings, result: TrialResult) -> FinishedTrial:
    measurement = result.measurement
    rate = measurement.samples_per_second if measurement is not None else None
    return FinishedTrial(
        number=number,
        settings=settings,
        stage=SAMPLED_STAGE if number else "baseline",
        outcome=result.outcome,
        samples_per_second=result.rate_or_bound,
        peak_memory_bytes=result.peak_memory_bytes,
        compute_samples_per_second=measurement.compute_samples_per_second if measurement is not None else None,
        data_wait_fraction=measurement.data_wait_fraction if measurement is not None else None,
        half_width_ratio=(measurement.high - measurement.low) / 2 / rate if measurement is not None and rate else None,
    )
