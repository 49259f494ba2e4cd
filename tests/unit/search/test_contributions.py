"""How the gain of a winner is split over its changes, by trials that are made up."""

from __future__ import annotations

import pytest

from autotune.model.outcome import Outcome
from autotune.model.search_result import Contribution
from autotune.search.contributions import contributions
from autotune.search.history import FinishedTrial, History
from autotune.settings import Precision, Settings

OWN = Settings(batch_size=64, intra_op_threads=2)
WORKERS = {"num_workers": 4, "persistent_workers": True}
BF16 = {"precision": Precision.BF16}
COMPILED = {"compile": True}
ONE_THREAD = {"intra_op_threads": 1}


def settings(*changes):
    values = {"batch_size": 64, "intra_op_threads": 2}
    for change in changes:
        values.update(change)
    return Settings(**values)


def trial(number, rate, *changes, outcome=Outcome.OK):
    return FinishedTrial(
        number=number,
        settings=settings(*changes),
        stage="",
        outcome=outcome,
        samples_per_second=rate,
        half_width_ratio=0.03,
    )


def found(*trials, winner):
    return contributions(History(trials, OWN), settings(*winner))


def test_a_chain_of_trials_splits_the_gain_into_factors():
    first, second = found(
        trial(0, 100.0), trial(1, 200.0, WORKERS), trial(2, 300.0, WORKERS, BF16), winner=(WORKERS, BF16)
    )
    assert (first.settings, first.ratio) == (("num_workers", "persistent_workers"), 2.0)
    assert (second.settings, second.ratio) == (("precision",), 1.5)
    assert (first.from_trial, first.to_trial, second.from_trial, second.to_trial) == (0, 1, 1, 2)
    assert first.is_along and second.is_along
    assert second.interval == pytest.approx((1.5 / 1.0433, 1.5 * 1.0433), rel=1e-3)


def test_the_factors_of_a_chain_make_up_the_whole_gain():
    trials = (trial(0, 97.0), trial(1, 180.0, BF16), trial(2, 230.0, BF16, COMPILED), trial(3, 510.0, WORKERS, BF16))
    whole = trial(4, 640.0, WORKERS, BF16, COMPILED)
    product = 1.0
    for factor in found(*trials, whole, winner=(WORKERS, BF16, COMPILED)):
        product *= factor.ratio if factor.is_along else 1.0
    assert product == pytest.approx(640.0 / 97.0)


def test_of_two_chains_the_finer_one_is_told():
    trials = (trial(0, 100.0), trial(1, 150.0, BF16), trial(2, 160.0, BF16, COMPILED), trial(3, 250.0, WORKERS))
    factors = found(*trials, trial(4, 300.0, WORKERS, BF16, COMPILED), winner=(WORKERS, BF16, COMPILED))
    assert [factor.to_trial for factor in factors] == [1, 2, 4]


def test_changes_that_only_came_together_stay_together():
    (factor,) = found(trial(0, 100.0), trial(1, 300.0, WORKERS, BF16), winner=(WORKERS, BF16))
    assert factor.settings == ("num_workers", "persistent_workers", "precision")
    assert factor.ratio == 3.0


def test_one_of_them_alone_is_told_where_two_other_trials_differ_in_nothing_else():
    elsewhere = (trial(2, 120.0, ONE_THREAD), trial(3, 180.0, ONE_THREAD, BF16))
    _, alone = found(trial(0, 100.0), trial(1, 300.0, WORKERS, BF16), *elsewhere, winner=(WORKERS, BF16))
    assert (alone.settings, alone.ratio, alone.is_along) == (("precision",), 1.5, False)
    assert (alone.from_trial, alone.to_trial, alone.is_least) == (2, 3, False)


def test_a_trial_that_was_stopped_early_tells_what_a_change_was_worth_at_least():
    stopped = trial(2, 240.0, WORKERS, outcome=Outcome.RACED_OUT)
    together, alone = found(trial(0, 100.0), trial(1, 300.0, WORKERS, BF16), stopped, winner=(WORKERS, BF16))
    assert together.ratio == 3.0, "its bound is no rate, so it is no step of the chain"
    assert (alone.settings, alone.ratio, alone.is_least, alone.interval) == (("precision",), 1.25, True, None)


def test_trials_that_failed_or_changed_something_else_are_no_steps():
    others = (
        trial(2, None, WORKERS, outcome=Outcome.CRASHED),
        trial(3, 250.0, WORKERS, ONE_THREAD),
        trial(4, 150.0, {"num_workers": 2, "persistent_workers": True}),
    )
    (factor,) = found(trial(0, 100.0), trial(1, 300.0, WORKERS, BF16), *others, winner=(WORKERS, BF16))
    assert (factor.from_trial, factor.to_trial) == (0, 1)


def test_without_a_measured_baseline_or_a_change_there_is_nothing_to_tell():
    assert found(trial(0, 100.0), winner=()) == ()
    over = trial(0, None, outcome=Outcome.OVER_CAP)
    assert found(over, trial(1, 300.0, WORKERS), winner=(WORKERS,)) == ()
    assert found(trial(0, 100.0), winner=(WORKERS,)) == ()


def test_a_contribution_is_read_back_from_its_document():
    for factor in found(trial(0, 100.0), trial(1, 200.0, WORKERS), winner=(WORKERS,)):
        assert Contribution.from_document(factor.document()) == factor
