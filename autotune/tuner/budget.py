"""The time of a search: what is spent, what is left, and what the finals need."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

NUM_ROUNDS = 3
"""Rounds of the finals as a rule. Where time is short, contenders are dropped first, then windows are shortened, then
rounds are left out: the limit of the search holds."""
LEAST_ROUNDS = 2
"""Fewest rounds of a comparison: a single pair of runs has no spread."""
ROUNDS_ALONE = 2
"""Rounds of a single contender, whose rate needs an interval but no comparison."""
OVERRUN_SHARE = 0.1
"""Share of the given time by which the finals may pass it, for one whole round more."""
MAX_ROUNDS = 6
"""More rounds are run only to decide whether a gain is real, and only while there is time."""
NUM_FINALISTS = 3
"""Best few that go to the finals, beside the baseline: re-measuring more than three gains little (measured)."""
TRIALS_PER_FINALIST = 4
"""Trials that a search should have for every finalist: a short one spends its time on trials."""
FINAL_WINDOW_S = 5.0
"""What a final's window lasts as a rule; where time is short it is given less."""
LEAST_FINAL_WINDOW_S = 3.0
"""Shorter than that a final says no more than the trial that it repeats."""
LEAST_SHARE = 0.5
"""And shorter than this share of a trial's window it has too few steps to say anything."""
NUM_RECENT = 8
"""Trials that tell what the next one takes: what a search tries changes as it goes."""
SLOW_SHARE = 0.75
"""The next trial is expected to take as long as this share of the recent ones at most."""


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
        self._around_s: list[float] = []
        self._window_s: list[float] = []

    @property
    def total_s(self) -> float:
        """What the user gave."""
        return self._total_s

    @property
    def spent_s(self) -> float:
        """Wall time so far."""
        return self._now() - self._began

    @property
    def left_s(self) -> float:
        """Wall time that is left; never negative."""
        return max(0.0, self._total_s - self.spent_s)

    @property
    def left_to_trials_s(self) -> float:
        """Wall time after which a running trial is ended, the tolerated overrun included; never negative."""
        return max(0.0, self._tolerated_s)

    def unsaved_s(self) -> float:
        """Wall time since this was last asked: what is to be added to the database."""
        now = self._now()
        elapsed_s, self._saved_at = now - self._saved_at, now
        return elapsed_s

    def trial_took(self, wall_s: float, *, window_s: float | None = None) -> None:
        """Learns how long a trial takes.

        Args:
            wall_s: From its start to its end.
            window_s: Its window, where it was measured in full: only such a trial tells what a final takes, since one
                that raced out or failed ended early.
        """
        self._trial_s.append(wall_s)
        if window_s is not None:
            self._around_s.append(max(0.0, wall_s - window_s))
            self._window_s.append(window_s)

    def final_took(self, wall_s: float, *, window_s: float) -> None:
        """Learns from a final as well what goes with its window."""
        self._around_s.append(max(0.0, wall_s - window_s))

    @property
    def around_s(self) -> float:
        """What a measured trial takes beside its window: start, warm-up, end."""
        recent = self._around_s[-NUM_RECENT:] or self._trial_s[-NUM_RECENT:]
        return sum(recent) / len(recent) if recent else 0.0

    @property
    def final_s(self) -> float:
        """What one run of the finals is expected to take."""
        return self.around_s + max(FINAL_WINDOW_S, self._usual_window_s)

    @property
    def least_final_s(self) -> float:
        """What one run of the finals takes with the shortest window that is of use."""
        return self.around_s + self._least_window_s

    def allows_trial(self) -> bool:
        """Whether there is time for one more trial and for the finals after it.

        The first trial is always allowed. The second one may take the time of the finals: without a second trial the
        finals would have nothing to compare.
        """
        if not self._trial_s:
            return True
        if len(self._window_s) <= 1:
            return self._tolerated_s >= self._next_trial_s
        return self.left_s >= self.reserve_s + self._next_trial_s

    @property
    def reserve_s(self) -> float:
        """What is kept for the finals; of a search that has hardly begun no more than they need at least."""
        num_finalists = min(NUM_FINALISTS, len(self._trial_s) // TRIALS_PER_FINALIST)
        if num_finalists == 0:
            return LEAST_ROUNDS * 2 * self.least_final_s
        return NUM_ROUNDS * (1 + num_finalists) * self.final_s

    def affordable_finalists(self) -> int:
        """How many of the best can go through all rounds beside the baseline, at least one."""
        num_contenders = int(self.left_s / (NUM_ROUNDS * max(self.final_s, FINAL_WINDOW_S)))
        return max(1, min(NUM_FINALISTS, num_contenders - 1))

    def affords_runs(self, num_runs: int) -> bool:
        """Whether so many finals fit into what is left, be it with short windows."""
        return self.left_s >= num_runs * self.least_final_s

    def affords_round(self, num_contenders: int) -> bool:
        """Whether one round of so many contenders ends within the tolerated overrun, if need be with short windows."""
        return self._tolerated_s >= num_contenders * self.least_final_s

    def enough_s(self) -> float:
        """Total time in which one trial more and the fewest rounds of two contenders would have ended, in seconds."""
        return self.spent_s + self._next_trial_s + LEAST_ROUNDS * 2 * self.least_final_s

    def final_window_s(self, num_runs: int) -> float:
        """Longest window of the next final, so that so many runs of the same kind fit into what is left."""
        return max(self._least_window_s, self.left_s / max(1, num_runs) - self.around_s)

    @property
    def _tolerated_s(self) -> float:
        """What is left with the tolerated overrun, in seconds; negative once that is spent as well."""
        return (1 + OVERRUN_SHARE) * self._total_s - self.spent_s

    @property
    def _usual_window_s(self) -> float:
        recent = self._window_s[-NUM_RECENT:]
        return sum(recent) / len(recent) if recent else 0.0

    @property
    def _least_window_s(self) -> float:
        """Steps that take seconds need longer windows, as the trials' own have shown."""
        return max(LEAST_FINAL_WINDOW_S, LEAST_SHARE * self._usual_window_s)

    @property
    def _next_trial_s(self) -> float:
        recent = sorted(self._trial_s[-NUM_RECENT:]) or [0.0]
        return recent[math.ceil(SLOW_SHARE * len(recent)) - 1]
