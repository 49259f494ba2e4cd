"""A lasting fall of a rate is noticed soon, and noise, pauses and short dips are not."""

from __future__ import annotations

import math
import random

import pytest

from autotune.measure.drift import NUM_REFERENCE, Drift

AN_HOUR = 360
"""Intervals of ten seconds."""


def noticed(rates):
    """(index, change) of the first drift; None without any."""
    drift = Drift()
    for index, rate in enumerate(rates):
        change = drift.note(rate)
        if change is not None:
            return index, change
    return None


def noisy(seed, spread, num=AN_HOUR, falls_at=None, to=0.9):
    rng = random.Random(seed)
    return [
        100.0 * rng.lognormvariate(0.0, spread) * (to if falls_at is not None and i >= falls_at else 1.0)
        for i in range(num)
    ]


@pytest.mark.parametrize("spread", [0.0, 0.01, 0.02, 0.03])
def test_no_hour_of_a_steady_run_has_a_drift(spread):
    assert [noticed(noisy(seed, spread)) for seed in range(10)] == [None] * 10


@pytest.mark.parametrize(("spread", "most"), [(0.0, 6), (0.01, 6), (0.02, 9), (0.03, 18)])
def test_a_fall_of_a_tenth_is_noticed_within_minutes(spread, most):
    for seed in range(10):
        falls_at = random.Random(seed).randrange(NUM_REFERENCE, AN_HOUR - 60)
        found = noticed(noisy(seed, spread, falls_at=falls_at))
        assert found is not None and 0 <= found[0] - falls_at <= most
        assert found[1] == pytest.approx(-0.1, abs=0.04)


def test_an_interval_with_a_pause_is_no_drift():
    rates = noisy(1, 0.01)
    rates[60] = 20.0
    rates[120] = rates[121] = 60.0
    assert noticed(rates) is None


def test_a_rate_that_rises_is_no_drift():
    assert noticed(noisy(1, 0.01, falls_at=100, to=1.2)) is None


def test_after_a_drift_the_new_rate_is_the_reference():
    drift = Drift()
    rates = noisy(2, 0.01, falls_at=100, to=0.8)
    assert len([rate for rate in rates if drift.note(rate) is not None]) == 1


def test_impossible_rates_are_left_out():
    drift = Drift()
    for rate in (0.0, -1.0, float("nan"), float("inf")):
        assert drift.note(rate) is None
    assert drift.reference is None


def slowly_noisy(seed, spread, memory=4.0):
    """An hour of rates with noise that lasts for some intervals, as by other programs."""
    rng, slow = random.Random(seed), 0.0
    keep, rates = math.exp(-1 / memory), []
    for _ in range(AN_HOUR):
        slow = keep * slow + math.sqrt(1 - keep**2) * rng.gauss(0.0, spread)
        rates.append(100.0 * math.exp(slow))
    return rates


@pytest.mark.parametrize(("spread", "most"), [(0.01, 0), (0.02, 1), (0.03, 8)])
def test_slow_noise_rarely_looks_like_a_drift(spread, most):
    """The median of two minutes is off by the noise itself: the reference is refined for twelve."""
    found = [noticed(slowly_noisy(seed, spread)) for seed in range(40)]
    assert sum(each is not None for each in found) <= most


def test_a_fall_while_the_reference_is_refined_is_told():
    rates = noisy(3, 0.02, falls_at=NUM_REFERENCE + 10)
    found = noticed(rates)
    assert found is not None and found[0] - NUM_REFERENCE - 10 <= 12
