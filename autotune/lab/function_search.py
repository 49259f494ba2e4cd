"""Searches the settings of a callable, without processes and without torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autotune.errors import EveryTrialFailedError
from autotune.lab.function_runner import Answer, evaluate
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.search.any_sampler import SamplerSearch
from autotune.search.history import FinishedTrial, History
from autotune.search.plan_state import PlanLimits
from autotune.search.study_search import Search, SearchExhausted
from autotune.settings import Settings
from autotune.space.search_space import SearchSpace
from autotune.units import GIB

DEFAULT_CAP_BYTES = 1024 * GIB
"""Memory cap for callables without a memory figure."""
NUM_FINALISTS = 3
MAX_INTERRUPTIONS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class FunctionSearch:
    """The outcome of the search of a callable."""

    trials: tuple[FinishedTrial, ...]
    """All trials in the order of measurement; the first is the baseline."""
    best: FinishedTrial | None
    """The fastest feasible trial by the trial's own rate; None when no trial is feasible."""
    baseline: FinishedTrial
    finalists: tuple[FinishedTrial, ...]
    """Candidates for the fastest settings, the fastest first, without the baseline: measure again to decide."""
    reason: str
    """Reason for the end of the search, as one sentence."""


def search_function(
    function: Callable[[Settings], Answer],
    space: SearchSpace,
    *,
    cap_bytes: int = DEFAULT_CAP_BYTES,
    usable_cpus: float = 1.0,
    max_trials: int = 40,
    spend_all: bool = True,
    seed: int = 0,
    sampler: Any = None,
) -> FunctionSearch:
    """Searches a space for the settings with the most samples per second of a callable.

    Args:
        function: Called with settings; gives samples per second, a `Measured`, or a `TrialResult`, and raises
            MemoryError for settings that do not fit. Other exceptions go through.
        space: Settings to try, from `space_over` or `recorded_space`.
        cap_bytes: Memory cap, compared with the callable's peaks.
        usable_cpus: Cores of the imagined machine, above 0: the first guess for the number of workers.
        max_trials: Most calls of the function, at least 1, baseline included.
        spend_all: Spend all trials; otherwise end when no gain is expected. A sampler always spends all trials.
        seed: Seed of the search.
        sampler: An Optuna sampler with a seed of its own, in place of our search; None = our search.

    Raises:
        EveryTrialFailedError: A trial was interrupted again and again.
    """
    limits = PlanLimits(usable_cpus=usable_cpus, cap_bytes=cap_bytes)
    search: Search | SamplerSearch
    if sampler is None:
        search = Search(None, "function", space, limits, seed=seed, max_trials=max_trials, spend_all=spend_all)
    else:
        search = SamplerSearch(sampler, space, limits, seed=seed, max_trials=max_trials)
    while not isinstance(proposal := search.ask(), SearchExhausted):
        search.tell(proposal.number, _measure(function, proposal.settings, cap_bytes))
    history: History = search.history
    baseline = search.baseline
    assert baseline is not None  # The baseline is the first trial, whatever the outcome.
    finalists = search.finalists(NUM_FINALISTS)
    return FunctionSearch(
        trials=history.trials, best=history.best, baseline=baseline, finalists=finalists, reason=proposal.reason
    )


def _measure(function: Callable[[Settings], Answer], settings: Settings, cap_bytes: int) -> TrialResult:
    """The callable's answer; an interrupted trial, recorded or real, is repeated."""
    for _ in range(MAX_INTERRUPTIONS):
        result = evaluate(function, settings, cap_bytes)
        if result.outcome is not Outcome.INTERRUPTED:
            return result
    message = f"A trial was interrupted {MAX_INTERRUPTIONS} times: {result.reason}"
    raise EveryTrialFailedError(message, "Leave out what always ends so.")
