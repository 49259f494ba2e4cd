"""Optuna's samplers on the same space, from the same baseline, with the same handling of what does not fit.

They are searches as users get them from `search_function(..., sampler=...)`: given what our own sampler has, but
for what the memory model merely finds unlikely, which they do run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, GPSampler, QMCSampler, RandomSampler, TPESampler

from autotune.search.any_sampler import SamplerSearch
from autotune.search.plan_state import PlanLimits
from tests.benchmarks.search.problem import Problem, Run, Strategy, searched


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
        limits = PlanLimits(usable_cpus=problem.usable_cpus, cap_bytes=problem.cap_bytes)
        sampler = SAMPLERS[name](seed)
        return searched(SamplerSearch(sampler, problem.space, limits, seed=seed, max_trials=num_trials), problem, seed)

    return search
