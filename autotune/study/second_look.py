"""Goes back to trials after finals without a gain, while time is left, and measures further finals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotune.model.outcome import Outcome
from autotune.model.trial_records import FinalRecord, finals_before_latest
from autotune.search.study_search import Search
from autotune.store.repository import Repository
from autotune.study.budget import MOST_FINALISTS, Budget
from autotune.study.final_choice import FinalsResult
from autotune.study.stop import StopRequest
from autotune.study.trial_loop import LoopEnd, TrialLoop

MAX_FINALS = 4
"""Most finals of one search: each is a chance to find a gain by luck."""


class SecondLooks:
    """What finals teach the search, and further finals after more trials.

    On a noisy machine a lucky trial looks better than all other settings, and no further trial seems worth the time.
    Finals measure the luck. With the rates of the finals, other settings may be worth a trial again.

    Args:
        study: Name of the study.
        search: Learns the rates of the finals.
        repository: Has the runs of trials and finals.
        budget: The time of the study.
        stop: Ends the search early.
    """

    def __init__(
        self, study: str, *, search: Search, repository: Repository, budget: Budget, stop: StopRequest
    ) -> None:
        self._study, self._search, self._repository = study, search, repository
        self._budget, self._stop = budget, stop

    def resume(self) -> None:
        """Learns from finals of an earlier session that more trials have followed."""
        trials, finals = self._repository.trials(self._study), self._repository.finals(self._study)
        before = finals_before_latest(trials, finals)
        if before:
            end = max(final.finished_at for final in before)
            self._learn(before, decided_until=max((t.number for t in trials if t.finished_at < end), default=-1))

    def finals(
        self, loop: TrialLoop, end: LoopEnd, run_finals: Callable[[LoopEnd], FinalsResult | None]
    ) -> tuple[LoopEnd, FinalsResult | None]:
        """The end of the trials and the result of the finals; after finals without a gain, of those after more trials.

        Args:
            loop: Runs the trials.
            end: The end of the trials so far.
            run_finals: Runs finals of the best trials after the given end of the trials.

        Returns:
            None in place of the result when the search was asked to stop before the finals of all trials.
        """
        result = run_finals(end)
        for _ in range(MAX_FINALS - 1):
            if self._stop.level or not _is_without_gain(result) or loop.has_spent_its_time:
                break
            self._budget.use_new_processes()
            last = max((trial.number for trial in self._search.history.trials), default=-1)
            self._learn(self._repository.finals(self._study), decided_until=last)
            num_before = self._search.num_finished
            later_end = loop.run()
            if self._search.num_finished == num_before:
                break
            if self._stop.level:
                return later_end, None
            end = later_end
            if not self._has_new_finalist():
                break
            later = run_finals(end)
            if self._stop.level and later is None:
                return end, None
            if later is None or not later.is_compared or not _has_rivals(later):
                break
            result = later
        return end, result

    def _learn(self, finals: Sequence[FinalRecord], *, decided_until: int) -> None:
        """Gives the search the runs of the finals; a trial that counted as a round is no further run."""
        of_trials = {trial.number: trial.result for trial in self._repository.trials(self._study)}
        rates: dict[int, list[float]] = {}
        infeasible: dict[int, Outcome] = {}
        for final in finals:
            measured, known = final.result.measurement, of_trials.get(final.number)
            if final.result.outcome.is_infeasible:
                infeasible[final.number] = final.result.outcome
            elif measured is not None and (known is None or known.measurement != measured):
                rates.setdefault(final.number, []).append(measured.samples_per_second)
        self._search.learn(rates, infeasible, decided_until=decided_until)

    def _has_new_finalist(self) -> bool:
        """Whether one of the best trials has not been in the finals."""
        known = {final.number for final in self._repository.finals(self._study)}
        return any(trial.number not in known for trial in self._search.finalists(MOST_FINALISTS))


def _is_without_gain(result: FinalsResult | None) -> bool:
    """Whether the script's own settings were compared with others, and won."""
    if result is None or result.baseline is None or not result.is_compared:
        return False
    return result.winner.number == result.baseline.number and _has_rivals(result)


def _has_rivals(result: FinalsResult) -> bool:
    """Whether the finals measured more than one contender."""
    return len({record.number for record in result.records}) > 1
