"""The time of a search: what is spent, what is left, and what the finals need."""

from __future__ import annotations

import time
from collections.abc import Callable

NUM_ROUNDS = 3
"""Rounds of the finals: the fewest that give an interval of a paired ratio worth the name."""
MAX_ROUNDS = 6
"""More rounds are run only to decide whether a gain is real, and only while there is time."""
NUM_FINALISTS = 3
"""Best few that go to the finals, beside the baseline: re-measuring more than three gains little (measured)."""
FINAL_S_FACTOR = 1.5
"""A final measures longer than a trial."""


class Budget:
    """Wall time of one study, over all of its runs.

    Args:
        total_s: What the user gave.
        spent_s: What earlier runs of the same study used.
        now: The monotonic clock.
    """

    def __init__(self, total_s: float, spent_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._total_s = total_s
        self._now = now
        self._began = now() - spent_s
        self._saved_at = now()
        self._trial_s: list[float] = []

    @property
    def spent_s(self) -> float:
        """Wall time so far."""
        return self._now() - self._began

    @property
    def left_s(self) -> float:
        """Wall time that is left; never negative."""
        return max(0.0, self._total_s - self.spent_s)

    def unsaved_s(self) -> float:
        """Wall time since this was last asked: what is to be added to the database."""
        now = self._now()
        elapsed_s, self._saved_at = now - self._saved_at, now
        return elapsed_s

    def trial_took(self, wall_s: float) -> None:
        """Learns how long a trial takes."""
        self._trial_s.append(wall_s)

    @property
    def final_s(self) -> float:
        """What one run of the finals is expected to take."""
        return FINAL_S_FACTOR * self._mean_trial_s

    def allows_trial(self) -> bool:
        """Whether there is time for one more trial and for the finals after it."""
        if not self._trial_s:
            return True
        reserve_s = NUM_ROUNDS * (1 + min(NUM_FINALISTS, len(self._trial_s))) * self.final_s
        return self.left_s >= reserve_s + self._mean_trial_s

    @property
    def _mean_trial_s(self) -> float:
        recent = self._trial_s[-8:]
        return sum(recent) / len(recent) if recent else 0.0
