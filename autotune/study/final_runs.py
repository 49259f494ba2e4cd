"""The runs of one study's finals: stored as they end, and continued by the next session after the last whole round."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from autotune.model.result import TrialResult
from autotune.model.trial_records import FinalRecord, finals_before_latest
from autotune.search.history import FinishedTrial
from autotune.settings import Settings
from autotune.store.repository import Repository


class FinalRuns:
    """The stored runs of the present finals, with rounds from 0.

    Earlier finals, held before the study's latest trial, had other contenders to choose from.
    """

    def __init__(self, repository: Repository, study: str) -> None:
        self._repository, self._study = repository, study
        self._read: tuple[FinalRecord, ...] | None = None
        """The stored runs of all finals of the study; None = read them again."""
        self._first = 0
        """Number of the rounds of earlier finals."""

    def begin(self) -> None:
        """Reads the runs, and begins after the rounds of earlier finals."""
        self._read = None
        before = finals_before_latest(self._repository.trials(self._study), self.every)
        self._first = 1 + max((final.round for final in before), default=-1)

    def count_earlier(self) -> None:
        """Counts the rounds of earlier finals as rounds of the present finals."""
        self._first = 0

    @property
    def every(self) -> tuple[FinalRecord, ...]:
        """The runs of all finals of the study, by round and time of the end.

        The database is read again after each run of the present finals: no other tuner of a study measures finals
        meanwhile.
        """
        if self._read is None:
            self._read = self._repository.finals(self._study)
        return self._read

    @property
    def earlier(self) -> tuple[FinalRecord, ...]:
        """The runs of earlier finals."""
        return tuple(record for record in self.every if record.round < self._first)

    @property
    def present(self) -> tuple[FinalRecord, ...]:
        """The runs of the present finals."""
        if not self._first:
            return self.every
        return tuple(replace(each, round=each.round - self._first) for each in self.every if each.round >= self._first)

    @property
    def next_round(self) -> int:
        """Number of the round after the latest round of the present finals."""
        return 1 + max((record.round for record in self.present), default=-1)

    def of(self, contenders: Collection[int]) -> tuple[FinalRecord, ...]:
        """The contenders' runs in the present finals."""
        return tuple(record for record in self.present if record.number in contenders)

    def done(self, round_index: int, contenders: Collection[int]) -> set[int]:
        """Numbers of the contenders measured in a round."""
        return {record.number for record in self.of(contenders) if record.round == round_index}

    def is_whole(self, round_index: int, contenders: Collection[int]) -> bool:
        """Whether every contender has been measured in a round."""
        return self.done(round_index, contenders) == set(contenders)

    def add(self, round_index: int, number: int, settings: Settings, result: TrialResult) -> None:
        """Stores a run that has just ended."""
        record = FinalRecord(
            round=self._first + round_index,
            number=number,
            settings=settings,
            result=result,
            finished_at=datetime.now(UTC),
        )
        self._repository.record_final(self._study, record)
        self._read = None

    def add_trials(
        self, round_index: int, contenders: Mapping[int, FinishedTrial], trials: Mapping[int, TrialResult]
    ) -> bool:
        """Stores the contenders' trials as a round, and returns True.

        Stores nothing, and returns False, when a run of the round exists already or a contender's trial is missing.
        """
        if self.done(round_index, contenders) or not contenders.keys() <= trials.keys():
            return False
        for number, trial in contenders.items():
            self.add(round_index, number, trial.settings, trials[number])
        return True
