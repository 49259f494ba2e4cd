"""Trials and further finals after finals without a gain."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.model.trial_records import FinalRecord, TrialRecord
from autotune.search.history import FinishedTrial, History
from autotune.settings import Settings
from autotune.study.final_choice import FinalsResult
from autotune.study.second_look import MAX_FINALS, SecondLooks
from autotune.study.stop import StopRequest
from autotune.study.trial_loop import LoopEnd
from tests.unit.study.test_finals import LONG_AGO, final_record, trial, trial_record

FIRST_END = LoopEnd(reason="The first trials are over.")


def finals_of(winner: int, *others: int, is_compared: bool = True) -> FinalsResult:
    numbers = {0, winner, *others}
    return FinalsResult(
        winner=trial(winner),
        baseline=trial(0),
        comparison=None,
        records=tuple(final_record(number) for number in sorted(numbers)),
        is_compared=is_compared,
    )


@dataclass
class Search:
    """A search, its database and its trials, with some trials left, and finals with given results."""

    results: list[FinalsResult | None]
    num_left: int = 8
    num_finished: int = 3
    has_spent_its_time: bool = False
    stops_in_trials: bool = False
    finals: list[FinalRecord] = field(default_factory=lambda: [final_record(0), final_record(1), final_record(1)])
    best: int = 2
    learned: list[dict[str, Any]] = field(default_factory=list)
    stop: StopRequest = field(default_factory=StopRequest)
    num_without_sharing: int = 0

    @property
    def history(self) -> History:
        return History([trial(number) for number in range(self.num_finished)], Settings())

    def learn(self, rates: Any, infeasible: Any, *, decided_until: int) -> None:
        self.learned.append({"rates": rates, "infeasible": infeasible, "decided_until": decided_until})

    def finalists(self, num: int) -> tuple[FinishedTrial, ...]:
        return (trial(self.best), trial(1))

    def use_new_processes(self) -> None:
        self.num_without_sharing += 1

    def run(self) -> LoopEnd:
        if self.num_left:
            self.num_left -= 1
            self.num_finished += 1
        if self.stops_in_trials:
            self.stop.request()
        return LoopEnd(reason="More trials are over.")

    def looks(self) -> SecondLooks:
        this: Any = self
        repository: Any = Repository(self.finals)
        return SecondLooks("train", search=this, repository=repository, budget=this, stop=self.stop)

    def looked(self) -> tuple[LoopEnd, FinalsResult | None]:
        this: Any = self
        return self.looks().finals(this, FIRST_END, lambda end: self.results.pop(0))


@dataclass
class Repository:
    """The runs of a study."""

    records: list[FinalRecord]
    latest_trial: datetime = LONG_AGO

    def trials(self, study: str) -> tuple[TrialRecord, ...]:
        return (trial_record(0), replace(trial_record(1), finished_at=self.latest_trial))

    def finals(self, study: str) -> tuple[FinalRecord, ...]:
        return tuple(self.records)


def test_after_finals_without_a_gain_more_trials_and_further_finals_decide() -> None:
    search = Search([finals_of(0, 1), finals_of(2, 1)])
    end, result = search.looked()
    assert result is not None and result.winner.number == 2
    assert end.reason == "More trials are over."
    assert search.num_without_sharing == 1, "the first finals may have been in the process of the trials"
    assert search.learned[0]["decided_until"] == 2


def test_a_trial_that_counted_as_a_round_teaches_nothing_and_a_run_over_the_cap_takes_the_trial_out() -> None:
    again = final_record(1, rate=90.0)
    over = replace(final_record(2), result=TrialResult(outcome=Outcome.OVER_CAP, reason="It held too much."))
    search = Search([finals_of(0, 1), finals_of(0, 2)], num_left=1, finals=[final_record(1), again, over])
    search.looked()
    assert search.learned[0]["rates"] == {1: [90.0]}
    assert search.learned[0]["infeasible"] == {2: Outcome.OVER_CAP}


@pytest.mark.parametrize(
    "result",
    [finals_of(1), finals_of(0), finals_of(0, 1, is_compared=False), None],
    ids=["a gain", "nothing to compare with", "too short", "stopped"],
)
def test_other_finals_have_the_last_word(result: FinalsResult | None) -> None:
    search = Search([result])
    assert search.looked() == (FIRST_END, result)
    assert search.num_finished == 3


@pytest.mark.parametrize("changes", [{"num_left": 0}, {"has_spent_its_time": True}], ids=str)
def test_without_another_trial_the_first_finals_stay(changes: dict[str, Any]) -> None:
    first = finals_of(0, 1)
    assert Search([first], **changes).looked() == (FIRST_END, first)


@pytest.mark.parametrize("later", [finals_of(0, 2, is_compared=False), finals_of(0)], ids=["too short", "no rival"])
def test_further_finals_without_a_comparison_change_only_the_reason_for_the_end(later: FinalsResult) -> None:
    first = finals_of(0, 1)
    end, result = Search([first, later]).looked()
    assert result is first and end.reason == "More trials are over."


def test_further_finals_that_leave_a_gain_open_are_the_answer() -> None:
    later = replace(finals_of(0, 2), is_open=True)
    _, result = Search([finals_of(0, 1), later], num_left=1).looked()
    assert result is later


def test_more_trials_without_a_new_finalist_need_no_further_finals() -> None:
    first = finals_of(0, 1)
    assert Search([first], best=1).looked()[1] is first


def test_a_search_without_a_gain_ends_after_so_many_finals() -> None:
    search = Search([finals_of(0, 1)] * (MAX_FINALS + 1))
    search.looked()
    assert len(search.results) == 1


def test_who_asks_for_an_end_before_more_trials_gets_the_finals() -> None:
    search = Search([finals_of(0, 1)])
    search.stop.request()
    assert search.looked()[0] is FIRST_END
    assert search.num_finished == 3


def test_who_asks_for_an_end_among_more_trials_can_resume() -> None:
    """A result would be the last word of the study; without one a resume compares the new trials."""
    assert Search([finals_of(0, 1)], stops_in_trials=True).looked()[1] is None


def test_a_resume_after_more_trials_knows_what_the_finals_taught() -> None:
    search = Search([])
    final = final_record(1, rate=90.0)
    this: Any = search
    for latest_trial, num_learned in ((LONG_AGO, 0), (final.finished_at + timedelta(seconds=5), 1)):
        repository: Any = Repository([final], latest_trial)
        SecondLooks("train", search=this, repository=repository, budget=this, stop=search.stop).resume()
        assert len(search.learned) == num_learned
    assert search.learned[0] == {"rates": {1: [90.0]}, "infeasible": {}, "decided_until": 0}
