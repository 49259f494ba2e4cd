"""Searching any callable from Python, without processes and without torch: simulations, grids, other benchmarks."""

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
"""A cap for callables that know no memory."""
NUM_FINALISTS = 3
MAX_INTERRUPTIONS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class FunctionSearch:
    """What a search of a callable came to."""

    trials: tuple[FinishedTrial, ...]
    """In the order in which they were measured; the first is the baseline."""
    best: FinishedTrial | None
    """The fastest feasible trial, by its own figure; None where no trial was feasible."""
    baseline: FinishedTrial
    finalists: tuple[FinishedTrial, ...]
    """Those that may be the fastest, the fastest first, without the baseline: measure them again to know."""
    reason: str
    """Why it ended, as one sentence."""


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
    """Searches the settings of a space for which a callable says the most samples per second.

    Args:
        function: Called with settings; gives samples per second, a `Measured`, or a `TrialResult`, and raises
            MemoryError for settings that do not fit. Other exceptions go through.
        space: What may be tried; `space_over` makes one, `recorded_space` reads a grid's.
        cap_bytes: Most memory that settings may need, where the callable says what they do.
        usable_cpus: Cores of the imagined machine, above 0: where a search looks for workers first.
        max_trials: Calls of the function, the baseline's among them, at least 1.
        spend_all: Spend all trials; otherwise end when nothing more is to be expected. A sampler spends them all.
        seed: Of the search.
        sampler: An Optuna sampler that searches in place of ours, under all else the same; it has its own seed.

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
    assert baseline is not None  # it is the first trial, whatever came of it
    finalists = search.finalists(NUM_FINALISTS)
    return FunctionSearch(
        trials=history.trials, best=history.best, baseline=baseline, finalists=finalists, reason=proposal.reason
    )


def _measure(function: Callable[[Settings], Answer], settings: Settings, cap_bytes: int) -> TrialResult:
    """The callable's answer; a recorded or a real trial that was interrupted is asked for again."""
    for _ in range(MAX_INTERRUPTIONS):
        result = evaluate(function, settings, cap_bytes)
        if result.outcome is not Outcome.INTERRUPTED:
            return result
    message = f"A trial was interrupted {MAX_INTERRUPTIONS} times: {result.reason}"
    raise EveryTrialFailedError(message, "Leave out what always ends so.")
