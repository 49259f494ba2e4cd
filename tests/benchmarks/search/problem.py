"""What a search is tried on, and what one search of it came to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.search.any_sampler import SamplerSearch
from autotune.search.study_search import Proposal, Search
from autotune.settings import Settings
from autotune.space.search_space import SearchSpace

WITHIN = 0.02
"""Share of the best rate that counts as having found it."""
NUM_FINALISTS = 3
NUM_ROUNDS = 3
"""As in the real finals."""
FINALS_SEED = 10**9
"""Seeds of measurements in finals lie beyond those of trials."""


class Problem(Protocol):
    """A job whose truth is known: simulated, or a recorded grid."""

    name: str
    space: SearchSpace
    usable_cpus: float
    cap_bytes: int

    @property
    def fixed_bytes(self) -> float:
        """At least so much of every peak does not grow with the micro-batch."""

    @property
    def fixed_estimate_bytes(self) -> float | None:
        """What the probe estimates of that part; None where the probe shows too little."""

    def run(self, settings: Settings, seed: int, incumbent: float | None) -> TrialResult:
        """What a noisy trial reports."""

    def regret(self, settings: Settings) -> float:
        """Share of the best rate under the cap that these settings give away; 1 where they need more than the cap."""

    def is_found(self, settings: Settings) -> bool:
        """Whether these settings count as the best ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One search of one problem."""

    problem: str
    seed: int
    tried_at: int | None
    """Trials until settings were among them that count as the best; None where that never was."""
    named_at: int | None
    """Trials from which on finals would have named settings that count as the best; None where not even at the end."""
    regrets: tuple[float, ...]
    """True regret, trial by trial, of what finals would have named."""
    num_infeasible: int
    cpu_s: float
    """Of the tuner, all trials together."""

    @property
    def num_trials(self) -> int:
        return len(self.regrets)

    def regret_at(self, num_trials: int) -> float:
        """Of what finals after so many trials would have named."""
        return self.regrets[min(num_trials, len(self.regrets)) - 1]


Strategy = Callable[[Problem, int, int], Run]
"""Searches a problem with a seed and a number of trials."""


def searched(search: Search | SamplerSearch, problem: Problem, seed: int) -> Run:
    """What a search of a problem comes to; it is driven as the tuner drives it."""
    log, cpu_s = _Log(problem, seed), 0.0
    while True:
        began_s = time.process_time()
        proposal = search.ask()
        cpu_s += time.process_time() - began_s
        if not isinstance(proposal, Proposal):
            return log.run(cpu_s)
        best = search.history.best
        result = problem.run(proposal.settings, seed, best.samples_per_second if best is not None else None)
        began_s = time.process_time()
        search.tell(proposal.number, result)
        cpu_s += time.process_time() - began_s
        log.note(proposal.settings, result, [trial.settings for trial in search.finalists(NUM_FINALISTS)])


class _Log:
    """Writes down what a search tries, and what it would name."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self._problem, self._seed = problem, seed
        self._num_infeasible = 0
        self._tried_at: int | None = None
        self._named_at: int | None = None
        self._regrets: list[float] = []
        self._final_rates: dict[Settings, float] = {}

    def note(self, settings: Settings, result: TrialResult, finalists: Sequence[Settings]) -> None:
        self._num_infeasible += result.outcome.is_infeasible
        named = max([*finalists, self._problem.space.script_settings], key=self._final_rate)
        self._regrets.append(self._problem.regret(named))
        if self._tried_at is None and self._problem.is_found(settings):
            self._tried_at = len(self._regrets)
        if not self._problem.is_found(named):
            self._named_at = None
        elif self._named_at is None:
            self._named_at = len(self._regrets)

    def run(self, cpu_s: float) -> Run:
        return Run(
            problem=self._problem.name,
            seed=self._seed,
            tried_at=self._tried_at,
            named_at=self._named_at,
            regrets=tuple(self._regrets),
            num_infeasible=self._num_infeasible,
            cpu_s=cpu_s,
        )

    def _final_rate(self, settings: Settings) -> float:
        """What a contender reaches in finals, the same whenever they are held; 0 where it fails in one of them."""
        if settings not in self._final_rates:
            seeds = [FINALS_SEED + NUM_ROUNDS * self._seed + number for number in range(NUM_ROUNDS)]
            results = [self._problem.run(settings, seed, None) for seed in seeds]
            rates = [one.measurement.samples_per_second for one in results if one.measurement is not None]
            is_sound = all(one.outcome is Outcome.OK for one in results)
            self._final_rates[settings] = median(rates) if is_sound else 0.0
        return self._final_rates[settings]
