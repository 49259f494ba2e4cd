"""Repeats disturbed runs, a limited number of times, and keeps the quieter run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.model.surroundings import Surroundings


class Repeats:
    """Counts the repeated runs of a search or a verification.

    Args:
        most: Most runs to throw away: a permanently disturbed machine must be measured as it is.
        of: The disturbances worth another run.
        outcome: The outcome worth another run.
    """

    def __init__(self, most: int, of: Callable[[Surroundings], Sequence[str]], outcome: Outcome = Outcome.OK) -> None:
        self._num_left, self._of, self._outcome = most, of, outcome

    def undisturbed(self, run: Callable[[], TrialResult], may_repeat: Callable[[TrialResult], bool]) -> TrialResult:
        """The result of a run; after a disturbed run, the quieter of two runs.

        A second run that fails for another reason than memory has no rate, and the disturbed first run counts.

        Args:
            run: Runs the script.
            may_repeat: Whether there is time for a second run like the first.
        """
        first = run()
        disturbed = tuple(self._of(first.surroundings)) if first.surroundings is not None else ()
        if not disturbed or first.outcome is not self._outcome or not self._num_left or not may_repeat(first):
            return first
        self._num_left -= 1
        second = run()
        tells = second.outcome.is_complete or second.outcome.is_infeasible
        if not tells or _load(second) > _load(first):
            return first
        return replace(second, notes=(*second.notes, f"A first run was thrown away: {' '.join(disturbed)}"))


def _load(result: TrialResult) -> tuple[int, float]:
    """Disturbance by others: sentences about the device, then busy cores."""
    found = result.surroundings
    return (len(found.device_disturbances), found.foreign_cpus or 0.0) if found is not None else (0, 0.0)
