"""When larger batches are probed, and what is said of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from autotune.model.outcome import Outcome
from autotune.search.history import FinishedTrial
from autotune.settings import Settings
from autotune.study.budget import Budget
from autotune.study.larger_batches import LEAST_TRIALS, BatchGain, BatchProbe, describe
from tests.unit.facts import script_facts, search_spec

BEST = FinishedTrial(
    number=3,
    settings=Settings(batch_size=32, grad_accum_steps=2),
    stage="loader",
    outcome=Outcome.OK,
    samples_per_second=900.0,
    peak_memory_bytes=1,
    compute_samples_per_second=1000.0,
    data_wait_fraction=None,
    half_width_ratio=0.01,
)


@dataclass
class Bench:
    rates: dict[int, float | None] = field(default_factory=lambda: {1: 1000.0, 2: 1310.0, 4: 1580.0})
    largest: int = 10_000
    total_s: float = 1000.0
    run_s: float = 0.0
    """Time of a measurement."""
    spent_s: float = 0.0
    is_stopped: bool = False
    spec: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[int, int]] = field(default_factory=list)

    def compute_rate(self, settings: Settings, factor: int) -> float | None:
        assert settings.batch_size is not None
        self.asked.append((settings.batch_size, factor))
        self.spent_s += self.run_s
        return self.rates[factor]

    def run(self, best: FinishedTrial | None = BEST, num_trials: int = LEAST_TRIALS) -> tuple[BatchGain, ...]:
        budget = Budget(self.total_s, 0.0, lambda: self.spent_s)
        budget.runs.trial_took(10.0, window_s=4.0)
        probe = BatchProbe(
            spec=search_spec(**self.spec),
            facts=script_facts(**self.facts),
            budget=budget,
            fits=lambda settings: (settings.batch_size or 0) <= self.largest,
            compute_rate=self.compute_rate,
            is_stopped=lambda: self.is_stopped,
        )
        return probe.run(best, num_trials)


def test_twice_and_four_times_the_batch_are_compared_with_the_batch_as_it_is() -> None:
    bench = Bench()
    first, second = bench.run()
    assert bench.asked == [(32, 2), (32, 4), (32, 1)]
    assert (first.factor, first.effective_batch, first.ratio) == (2, 128, 1.31)
    assert (second.factor, second.effective_batch, second.ratio) == (4, 256, 1.58)


def test_what_does_not_fit_is_not_run() -> None:
    bench = Bench(largest=64)
    assert [gain.factor for gain in bench.run()] == [2]
    assert bench.asked == [(32, 2), (32, 1)]


def test_a_batch_is_not_tried_without_time_to_compare_it() -> None:
    asked = set()
    for total_s in range(40, 160, 4):
        bench = Bench(total_s=float(total_s), run_s=6.0)
        bench.run()
        asked.add(tuple(factor for _, factor in bench.asked))
    assert asked == {(), (2, 1), (2, 4, 1)}


def test_a_machine_that_became_faster_makes_no_gain() -> None:
    assert [gain.ratio for gain in Bench(rates={1: 1310.0, 2: 1310.0, 4: 1572.0}).run()] == [1.0, 1.2]


def test_a_machine_that_became_slower_makes_no_gain() -> None:
    assert [gain.ratio for gain in Bench(rates={1: 500.0, 2: 900.0, 4: 1100.0}).run()] == [0.9, 1.1]


def test_a_gain_without_a_second_measurement_of_the_batch_as_it_is_is_none() -> None:
    assert Bench(rates={1: None, 2: 1310.0, 4: 1580.0}).run() == ()


def test_without_a_gain_the_batch_as_it_is_is_not_measured_again() -> None:
    bench = Bench(rates={2: 1010.0, 4: 980.0})
    assert bench.run() == ()
    assert bench.asked == [(32, 2), (32, 4)]


def test_a_script_that_takes_no_other_batch_is_left_alone() -> None:
    bench = Bench(rates={2: None, 4: 1.0})
    assert bench.run() == ()
    assert bench.asked == [(32, 2)]


@pytest.mark.parametrize(
    "changes",
    [
        {"spec": {"effective_batch": "free"}},
        {"facts": {"loader": None}},
        {"is_stopped": True},
        {"total_s": 40.0},
    ],
)
def test_nothing_is_probed_where_it_says_nothing_or_costs_the_finals_their_time(changes: dict[str, Any]) -> None:
    bench = Bench(**changes)
    assert bench.run() == ()
    assert bench.asked == []


@pytest.mark.parametrize(
    "best",
    [None, replace(BEST, compute_samples_per_second=None), replace(BEST, settings=Settings())],
)
def test_nothing_is_probed_without_a_rate_and_a_batch_to_compare_with(best: FinishedTrial | None) -> None:
    assert Bench().run(best) == ()


def test_a_short_search_has_no_time_for_what_it_was_not_asked() -> None:
    assert Bench().run(num_trials=LEAST_TRIALS - 1) == ()


def test_ranks_count_in_the_effective_batch() -> None:
    assert [gain.effective_batch for gain in Bench(facts={"world_size": 4}).run()] == [512, 1024]


def test_the_note_names_the_gain_the_flag_and_the_rules() -> None:
    note = describe(Bench().run())
    for part in ("At 4x the batch", "+58%", "2x +31%", "--effective-batch 64..256", "4 times", "2 times for Adam"):
        assert part in note, part


def test_no_gain_is_no_note() -> None:
    assert describe(()) == ""
    assert describe(Bench(rates={2: 1010.0, 4: 980.0}).run()) == ""


def test_a_batch_that_no_search_may_choose_is_left_to_the_script() -> None:
    note = describe(Bench().run(), can_search=False)
    assert "--effective-batch" not in note and "in the script's own settings" in note
