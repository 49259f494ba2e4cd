"""Comparing two estimates that were measured apart."""

import math
import random

import pytest

from autotune.measure.apart import Estimate, compare_apart
from autotune.measure.student_t import student_t_quantile

RATE = Estimate(value=100.0, low=90.0, high=110.0)


def log_estimate(logs):
    """The mean of logarithms with its t-interval at 95 %, as the finals publish a rate."""
    mean = sum(logs) / len(logs)
    variance = sum((log - mean) ** 2 for log in logs) / (len(logs) - 1)
    half = student_t_quantile(0.975, len(logs) - 1) * math.sqrt(variance / len(logs))
    return Estimate(value=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half))


def test_a_rate_is_once_itself_within_its_own_noise():
    ratio = compare_apart(RATE, RATE)
    assert ratio.value == 1.0 and ratio.low < 0.9 < 1.1 < ratio.high


def test_against_something_exact_the_interval_is_the_rates_own():
    exact = Estimate(value=50.0, low=50.0, high=50.0)
    ratio = compare_apart(RATE, exact)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((2.0, 1.8, 2.2))


def test_the_other_way_round_it_is_the_inverse():
    there = Estimate(value=300.0, low=200.0, high=330.0)
    ratio, inverse = compare_apart(RATE, there), compare_apart(there, RATE)
    assert (1 / ratio.value, 1 / ratio.high, 1 / ratio.low) == pytest.approx((inverse.value, inverse.low, inverse.high))


def test_two_intervals_that_just_touch_are_a_difference():
    ratio = compare_apart(Estimate(value=121.0, low=110.0, high=133.1), Estimate(value=100.0, low=90.9, high=110.0))
    assert ratio.low > 1.0, "apart by more than the hypotenuse of the two halves"


@pytest.mark.parametrize("num_rounds", [(3, 3), (3, 8), (6, 2)])
def test_the_interval_holds_what_it_promises(num_rounds):
    random_ = random.Random(7)
    num_held, num_tries = 0, 2000
    for _ in range(num_tries):
        ours, theirs = (
            log_estimate([random_.gauss(math.log(rate), 0.05) for _ in range(num)])
            for rate, num in zip((130.0, 100.0), num_rounds, strict=True)
        )
        ratio = compare_apart(ours, theirs)
        num_held += ratio.low <= 1.3 <= ratio.high
    assert num_held / num_tries >= 0.945


@pytest.mark.parametrize("values", [(0.0, 0.0, 1.0), (1.0, 2.0, 3.0), (1.0, 0.5, math.inf), (math.nan, 0.5, 1.0)])
def test_an_estimate_that_cannot_be_is_refused(values):
    with pytest.raises(ValueError, match="estimate"):
        Estimate(value=values[0], low=values[1], high=values[2])
