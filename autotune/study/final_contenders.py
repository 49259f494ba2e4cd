"""The contenders of the finals, and their processes: new processes, or the process of the trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autotune.model.result import TrialResult
from autotune.search.beside_load import is_suspect
from autotune.search.history import FinishedTrial
from autotune.settings import Settings
from autotune.study.budget import LEAST_ROUNDS, Budget
from autotune.study.final_runs import FinalRuns

FINALS_SLACK = 1.25
"""Time for finals in new processes as a multiple of their expected time; with less, finals run in the process of the
trials. A round of YOLOv5 on an H200 took 47 s in place of 40 s, and the second round no longer fit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """The trials that may run in the finals."""

    finalists: Sequence[FinishedTrial]
    """The best trials, the fastest first."""
    baseline: FinishedTrial | None
    """The trial of the script's own settings."""
    budget: Budget
    runs: FinalRuns

    def contenders(self, *, is_chosen: bool) -> dict[int, FinishedTrial]:
        """The baseline and the best trials for which the time suffices, by number.

        After a long compilation the fewest rounds of the best trial may no longer fit the time. Then a slower trial
        with shorter rounds runs: a verified gain is worth more than an unverified larger gain. For the same reason a
        single contender beside foreign load has no changes for loaded machines, if possible.

        The baseline is measured even after a trial too slow to win: without the baseline nothing can be published.

        Args:
            is_chosen: Whether the finalists were chosen among several trials.
        """
        baseline = self.baseline
        best = list(self.finalists[: self.budget.affordable_finalists()])
        own = {baseline.number: baseline} if baseline is not None and baseline.outcome.is_complete else {}
        begun = self._begun(own, num_wanted=len(best))
        if begun:
            best = begun
        elif len(best) == 1 and own and is_chosen:
            sound = [trial for trial in self.finalists if not is_suspect(trial, baseline)] or self.finalists
            best = [trial for trial in sound if self.budget.affords_least_rounds((trial.number, *own))][:1] or best
        return {trial.number: trial for trial in best} | own

    def have_time(self) -> bool:
        """Whether the fewest rounds of the baseline and a finalist fit the time."""
        own = [self.baseline.number] if self.baseline is not None else []
        return any(self.budget.affords_least_rounds((trial.number, *own)) for trial in self.finalists)

    def able_to_share(
        self,
        contenders: Mapping[int, FinishedTrial],
        trials: Mapping[int, TrialResult],
        can_share: Callable[[Settings], bool],
    ) -> list[FinishedTrial]:
        """The finalists for rounds in one process, the fastest first; empty where new processes are better or needed.

        New processes are better when the time suffices for FINALS_SLACK times their expected time. When the trials
        count as one round, a single round of new processes is enough.

        Args:
            contenders: The contenders for rounds in new processes.
            trials: Results of trials that were not chosen, by number.
            can_share: Whether the process of the trials can measure settings.
        """
        has_trials, baseline, budget = contenders.keys() <= trials.keys(), self.baseline, self.budget
        is_begun = not all(record.result.is_live for record in self.runs.of(contenders))
        if len(contenders) < 2 or baseline is None or is_begun:
            return []
        best = self.finalists[0]
        pair = (best.number, baseline.number)
        if budget.affords_least_rounds(pair, slack=FINALS_SLACK):
            return []
        if has_trials and budget.affords_last_round(contenders):
            return []
        if not can_share(baseline.settings):
            return []
        num_rounds = LEAST_ROUNDS - 1 if has_trials else LEAST_ROUNDS
        able = [
            trial
            for trial in self.finalists
            if budget.affords_shared_rounds(num_rounds, (trial.number, baseline.number)) and can_share(trial.settings)
        ]
        # Rounds of the fastest trial that only just fit are worth more than certain rounds of a slower one.
        return able if best in able or not budget.affords_least_rounds(pair) else []

    def _begun(self, own: Mapping[int, FinishedTrial], *, num_wanted: int) -> list[FinishedTrial]:
        """The rivals in the rounds of an earlier session, the fastest first; empty before a run of a rival.

        The latest round may be half done, and the round before has all who were still running. A first round that may
        be half done is filled up to the wanted number.
        """
        records = self.runs.present
        latest = max((record.round for record in records), default=0)
        running = {record.number for record in records if record.round >= latest - 1} - own.keys()
        begun = [trial for trial in self.finalists if trial.number in running]
        if not begun or latest:
            return begun
        others = [trial for trial in self.finalists if trial.number not in running and trial.number not in own]
        return begun + others[: max(0, num_wanted - len(begun))]
