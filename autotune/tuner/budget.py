"""The time of a search: what is spent, what is left, and what the finals need."""

from __future__ import annotations

import time
from collections.abc import Callable

NUM_ROUNDS = 3
"""Rounds of the finals: the fewest that give an interval of a paired ratio worth the name."""
ROUNDS_ALONE = 2
"""Rounds of a single contender, whose figure needs an interval but no comparison."""
MAX_ROUNDS = 6
"""More rounds are run only to decide whether a gain is real, and only while there is time."""
NUM_FINALISTS = 3
"""Best few that go to the finals, beside the baseline: re-measuring more than three gains little (measured)."""
TRIALS_PER_FINALIST = 4
"""Trials that a search should have for every finalist: a short one spends its time on trials."""
FINAL_EXTRA_S = 4.0
"""A final starts as a trial does, and measures so much longer."""


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
        return self._mean_trial_s + FINAL_EXTRA_S

    def allows_trial(self) -> bool:
        """Whether there is time for one more trial and for the finals after it."""
        if not self._trial_s:
            return True
        num_finalists = max(1, min(NUM_FINALISTS, len(self._trial_s) // TRIALS_PER_FINALIST))
        reserve_s = NUM_ROUNDS * (1 + num_finalists) * self.final_s
        return self.left_s >= reserve_s + self._mean_trial_s

    def affordable_finalists(self) -> int:
        """How many of the best can go through all rounds beside the baseline, at least one."""
        num_contenders = int(self.left_s / (NUM_ROUNDS * max(self.final_s, FINAL_EXTRA_S)))
        return max(1, min(NUM_FINALISTS, num_contenders - 1))

    @property
    def _mean_trial_s(self) -> float:
        recent = self._trial_s[-8:]
        return sum(recent) / len(recent) if recent else 0.0
