"""Trials and further finals after finals without a gain."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from autotune.study.finals import FinalsResult
from autotune.study.second_look import MAX_FINALS, finals_with_second_looks
from autotune.study.stop import StopRequest
from autotune.study.trial_loop import LoopEnd
from tests.unit.study.test_finals import final_record, trial

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
    """A search with some trials left, and finals with given results."""

    results: list[FinalsResult | None]
    num_left: int = 8
    num_finished: int = 5
    has_spent_its_time: bool = False
    learned: list[dict[int, list[float]]] = field(default_factory=list)
    stop: StopRequest = field(default_factory=StopRequest)

    def learn(self, rates: dict[int, list[float]]) -> None:
        self.learned.append(rates)

    def run(self) -> LoopEnd:
        if self.num_left:
            self.num_left -= 1
            self.num_finished += 1
        return LoopEnd(reason="More trials are over.")

    def looked(self) -> tuple[LoopEnd, FinalsResult | None]:
        this: Any = self
        return finals_with_second_looks(
            this,
            this,
            FIRST_END,
            self.stop,
            finals=lambda end: self.results.pop(0),
            records=lambda: [final_record(0), final_record(1), final_record(1)],
        )


def test_after_finals_without_a_gain_more_trials_and_further_finals_decide() -> None:
    search = Search([finals_of(0, 1), finals_of(2, 1)])
    end, result = search.looked()
    assert result is not None and result.winner.number == 2
    assert end.reason == "More trials are over."
    assert {number: len(rates) for number, rates in search.learned[0].items()} == {0: 1, 1: 2}


@pytest.mark.parametrize(
    "result",
    [finals_of(1), finals_of(0), finals_of(0, 1, is_compared=False), None],
    ids=["a gain", "nothing to compare with", "too short", "stopped"],
)
def test_other_finals_have_the_last_word(result: FinalsResult | None) -> None:
    search = Search([result])
    assert search.looked() == (FIRST_END, result)
    assert search.num_finished == 5


@pytest.mark.parametrize("changes", [{"num_left": 0}, {"has_spent_its_time": True}], ids=str)
def test_without_another_trial_the_first_finals_stay(changes: dict[str, Any]) -> None:
    first = finals_of(0, 1)
    assert Search([first], **changes).looked() == (FIRST_END, first)


def test_further_finals_without_time_for_a_comparison_change_nothing() -> None:
    first = finals_of(0, 1)
    assert Search([first, finals_of(0, 2, is_compared=False)]).looked() == (FIRST_END, first)


def test_a_search_without_a_gain_ends_after_so_many_finals() -> None:
    search = Search([finals_of(0, 1)] * (MAX_FINALS + 1))
    search.looked()
    assert len(search.results) == 1


def test_who_asks_for_an_end_gets_the_finals_before() -> None:
    search = Search([finals_of(0, 1)])
    search.stop.request()
    assert search.looked()[0] is FIRST_END
    assert search.num_finished == 5
