"""Our own search as the tuner drives it, in memory."""

from __future__ import annotations

from autotune.search.plan_state import PlanLimits
from autotune.search.study_search import Search
from tests.benchmarks.search.problem import Problem, Run, searched


def autotune(problem: Problem, seed: int, num_trials: int) -> Run:
    """Plan and sampler, with all of the trials spent."""
    return searched(_search(problem, seed, num_trials, spend_all=True), problem, seed)


def autotune_stopping(problem: Problem, seed: int, num_trials: int) -> Run:
    """Plan and sampler as they run by default: until nothing more is to be expected."""
    return searched(_search(problem, seed, num_trials, spend_all=False), problem, seed)


def _search(problem: Problem, seed: int, num_trials: int, *, spend_all: bool) -> Search:
    limits = PlanLimits(
        usable_cpus=problem.usable_cpus,
        cap_bytes=problem.cap_bytes,
        fixed_bytes=problem.fixed_bytes,
        fixed_estimate_bytes=problem.fixed_estimate_bytes,
    )
    return Search(None, "benchmark", problem.space, limits, seed=seed, max_trials=num_trials, spend_all=spend_all)
