"""What a search is tried on, and what one search of it came to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from autotune.model.result import TrialResult
from autotune.settings import Settings
from autotune.space.space import SearchSpace

WITHIN = 0.02
"""Share of the best rate that counts as having found it."""
NUM_FINALISTS = 3


class Problem(Protocol):
    """A job whose truth is known: simulated, or a recorded grid."""

    name: str
    space: SearchSpace
    usable_cpus: float
    cap_bytes: int

    @property
    def fixed_bytes(self) -> float:
        """At least so much of every peak does not grow with the micro-batch."""

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
    regrets: tuple[float, ...]
    """True regret of the best settings up to each trial."""
    found_at: int | None
    """Trials until settings were among them that count as the best; None where that never was."""
    selected_regret: float
    """Of the truly best among the finalists, as its finals would find out, or of the baseline."""
    num_infeasible: int
    cpu_s: float
    """Of the tuner, all trials together."""

    @property
    def num_trials(self) -> int:
        return len(self.regrets)

    def regret_at(self, num_trials: int) -> float:
        """Of the best settings among the first so many."""
        return self.regrets[min(num_trials, len(self.regrets)) - 1]


Strategy = Callable[[Problem, int, int], Run]
"""Searches a problem with a seed and a number of trials."""


class RunLog:
    """Writes down what a strategy tries."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem, self.seed = problem, seed
        self.num_infeasible = 0
        self._regrets: list[float] = []
        self._found_at: int | None = None

    def measure(self, settings: Settings, incumbent: float | None) -> TrialResult:
        """Runs a trial."""
        result = self.problem.run(settings, self.seed, incumbent)
        self.num_infeasible += result.outcome.is_infeasible
        best = self._regrets[-1] if self._regrets else 1.0
        self._regrets.append(min(best, self.problem.regret(settings)))
        if self._found_at is None and self.problem.is_found(settings):
            self._found_at = len(self._regrets)
        return result

    def run(self, finalists: list[Settings], cpu_s: float) -> Run:
        """What it came to."""
        contenders = [*finalists, self.problem.space.natural]
        return Run(
            problem=self.problem.name,
            seed=self.seed,
            regrets=tuple(self._regrets),
            found_at=self._found_at,
            selected_regret=min(map(self.problem.regret, contenders)),
            num_infeasible=self.num_infeasible,
            cpu_s=cpu_s,
        )
