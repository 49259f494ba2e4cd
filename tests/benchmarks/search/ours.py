"""Our own search as the tuner drives it, in memory."""

from __future__ import annotations

import time

from autotune.search.search import Proposal, Search
from autotune.search.walk import PlanLimits
from tests.benchmarks.search.problem import NUM_FINALISTS, Problem, Run, RunLog


def autotune(problem: Problem, seed: int, num_trials: int) -> Run:
    """Plan and sampler, with all of the trials spent."""
    return _search(problem, seed, num_trials, spend_all=True)


def autotune_stopping(problem: Problem, seed: int, num_trials: int) -> Run:
    """Plan and sampler as they run by default: until nothing more is to be expected."""
    return _search(problem, seed, num_trials, spend_all=False)


def _search(problem: Problem, seed: int, num_trials: int, *, spend_all: bool) -> Run:
    limits = PlanLimits(usable_cpus=problem.usable_cpus, cap_bytes=problem.cap_bytes, fixed_bytes=problem.fixed_bytes)
    search = Search(None, "benchmark", problem.space, limits, seed=seed, max_trials=num_trials, spend_all=spend_all)
    log = RunLog(problem, seed)
    began_s = time.process_time()
    while isinstance(proposal := search.ask({"owner": "benchmark"}), Proposal):
        best = search.history.best
        result = log.measure(proposal.settings, best.samples_per_second if best is not None else None)
        search.tell(proposal.number, result)
    finalists = [trial.settings for trial in search.finalists(NUM_FINALISTS)]
    return log.run(finalists, time.process_time() - began_s)
