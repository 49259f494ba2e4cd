"""Optuna's samplers on the same space, from the same baseline, with the same handling of what does not fit.

They are given most of what our own sampler has: numbers as positions in their order, trials over the cap told as
complete with the same constraints, suggestions that the memory model rules out are not run, and a repetition costs
no trial. What the model merely finds unlikely, as our sampler refuses it too, they do run.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, GPSampler, QMCSampler, RandomSampler, TPESampler
from optuna.trial import Trial, TrialState

from autotune.model.result import TrialResult
from autotune.search.history import FinishedTrial, History
from autotune.search.memory_model import MemoryModel
from autotune.search.verdict import verdict
from autotune.settings import Settings
from autotune.space.space import SearchSpace, Value
from tests.benchmarks.search.problem import NUM_FINALISTS, Problem, Run, RunLog, Strategy

MAX_REFUSALS = 20
"""Suggestions refused in a row before settings are drawn at random instead."""


def _quasi_random(seed: int) -> BaseSampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return QMCSampler(seed=seed, scramble=True)


SAMPLERS: dict[str, Callable[[int], BaseSampler]] = {
    "tpe": lambda seed: TPESampler(seed=seed),
    "tpe, multivariate off": lambda seed: TPESampler(seed=seed, multivariate=False),
    "gp": lambda seed: GPSampler(seed=seed),
    "random": lambda seed: RandomSampler(seed=seed),
    "quasi-random": _quasi_random,
}


def rival(name: str) -> Strategy:
    """A strategy of one of the samplers."""

    def search(problem: Problem, seed: int, num_trials: int) -> Run:
        return _Rival(problem, seed, SAMPLERS[name](seed)).search(num_trials)

    return search


@dataclass
class _Encoding:
    """Allowed values as distributions, and back."""

    space: SearchSpace
    values: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    distributions: dict[str, BaseDistribution] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.space.searched:
            values: tuple[Value, ...] = self.space.allowed[name]
            if any(isinstance(value, (str, bool)) for value in values):
                self.distributions[name] = CategoricalDistribution(values)
            else:
                values = tuple(sorted(values))
                self.distributions[name] = IntDistribution(0, len(values) - 1)
            self.values[name] = values

    def settings(self, params: dict[str, Any]) -> Settings:
        plain: dict[str, Any] = dict(self.space.params(self.space.natural))
        for name, value in params.items():
            plain[name] = self.values[name][value] if isinstance(self.distributions[name], IntDistribution) else value
        return self.space.settings(plain)

    def params(self, settings: Settings) -> dict[str, Any]:
        plain = self.space.params(settings)
        return {
            name: self.values[name].index(plain[name]) if isinstance(kind, IntDistribution) else plain[name]
            for name, kind in self.distributions.items()
        }


class _Rival:
    def __init__(self, problem: Problem, seed: int, sampler: BaseSampler) -> None:
        self._problem = problem
        self._encoding = _Encoding(problem.space)
        self._rng = random.Random(seed)
        self._study = optuna.create_study(direction="maximize", sampler=sampler, pruner=optuna.pruners.NopPruner())
        self._natural = problem.space.natural.canonical(device_is_cpu=problem.space.device_is_cpu)
        self._finished: list[FinishedTrial] = []
        self._log = RunLog(problem, seed)

    def search(self, num_trials: int) -> Run:
        began_s = time.process_time()
        self._study.enqueue_trial(self._encoding.params(self._natural))
        while len(self._finished) < num_trials:
            trial, settings = self._next()
            best = self._history.best
            result = self._log.measure(settings, best.samples_per_second if best is not None else None)
            self._tell(trial, settings, result)
        finalists = [trial.settings for trial in self._history.feasible[:NUM_FINALISTS]]
        return self._log.run(finalists, time.process_time() - began_s)

    @property
    def _history(self) -> History:
        return History(self._finished, self._natural)

    def _next(self) -> tuple[Trial, Settings]:
        """What the sampler suggests and is neither known nor ruled out."""
        history = self._history
        memory = MemoryModel(history, self._problem.space, self._problem.cap_bytes)
        for _ in range(MAX_REFUSALS):
            trial = self._study.ask(self._encoding.distributions)
            settings = self._encoding.settings(trial.params)
            if not self._finished or (settings not in history and memory.ruled_out(settings) is None):
                return trial, settings
            self._study.tell(trial, state=TrialState.PRUNED)
        while True:
            self._study.enqueue_trial(self._encoding.params(self._drawn()))
            trial = self._study.ask(self._encoding.distributions)
            settings = self._encoding.settings(trial.params)
            if settings not in history:
                return trial, settings
            self._study.tell(trial, state=TrialState.PRUNED)

    def _drawn(self) -> Settings:
        space = self._problem.space
        return space.settings({name: self._rng.choice(space.allowed[name]) for name in space.searched})

    def _tell(self, trial: Trial, settings: Settings, result: TrialResult) -> None:
        told = verdict(result, self._problem.cap_bytes)
        assert told is not None
        for key, value in told.constraints.items():
            trial.set_constraint(key, value)
        self._study.tell(trial, told.value)
        measurement = result.measurement
        self._finished.append(
            FinishedTrial(
                number=trial.number,
                settings=settings,
                stage="",
                outcome=result.outcome,
                samples_per_second=result.rate_or_bound,
                peak_memory_bytes=result.peak_memory_bytes,
                compute_samples_per_second=measurement.compute_samples_per_second if measurement else None,
                data_wait_fraction=measurement.data_wait_fraction if measurement else None,
                half_width_ratio=None,
            )
        )
