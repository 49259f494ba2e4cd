"""Of thousands of trials a proposal looks at those that say most; of few at all."""

from __future__ import annotations

from dataclasses import replace

from autotune.model.outcome import Outcome
from autotune.search.history import MAX_INFORMATIVE, FinishedTrial, History
from autotune.settings import Settings

NATURAL = Settings(batch_size=64)


def trial(number: int) -> FinishedTrial:
    outcome = Outcome.OVER_CAP if number % 10 == 9 else Outcome.OK
    settings = replace(NATURAL, num_workers=number % 1000, prefetch_factor=2 + number // 1000)
    rate = 1000.0 + number * 7919 % 10_007 if outcome is Outcome.OK else None
    return FinishedTrial(
        number=number, settings=settings, stage="", outcome=outcome, samples_per_second=rate, peak_memory_bytes=1
    )


def test_few_trials_are_all_looked_at() -> None:
    history = History(map(trial, range(MAX_INFORMATIVE)), NATURAL)
    assert history.informative is history


def test_of_many_the_fastest_the_latest_the_failed_and_the_baseline_are_looked_at() -> None:
    history = History(map(trial, range(5000)), NATURAL)
    telling = history.informative
    assert len(telling) <= MAX_INFORMATIVE + 1
    assert telling.best == history.best
    assert telling.baseline == history.baseline
    assert history.trials[-1] in telling.trials
    assert any(one.outcome.is_infeasible for one in telling.trials)
    assert telling.informative is telling or len(telling.informative) <= MAX_INFORMATIVE + 1
