import math

import pytest

from autotune.measure.pair_interval import TYPICAL_PAIR_SPREAD, half_width, pair_half_width


@pytest.mark.parametrize(
    ("values", "spread", "confidence"), [([1.0], 0.05, 0.98), ([1.0, 2.0], 0.0, 0.98), ([1.0, 2.0], 0.05, 1.0)]
)
def test_too_few_values_and_arguments_out_of_range_are_refused(values, spread, confidence):
    with pytest.raises(ValueError, match=r"spread|confidence"):
        half_width(values, spread, confidence)


def test_rounds_of_different_numbers_are_refused():
    with pytest.raises(ValueError):
        pair_half_width([1.0, 2.0], [1.0], 0.98)


def test_values_that_are_equal_by_chance_keep_an_interval():
    assert 0.01 < half_width([0.3, 0.3], TYPICAL_PAIR_SPREAD, 0.98) < 0.2


def test_more_rounds_a_smaller_typical_spread_and_less_confidence_narrow_the_interval():
    widest = half_width([0.3, 0.35], 0.05, 0.98)
    assert half_width([0.3, 0.35] * 3, 0.05, 0.98) < widest
    assert half_width([0.3, 0.35], 0.01, 0.98) < widest
    assert half_width([0.3, 0.35], 0.05, 0.95) < widest


def test_a_dozen_rounds_have_the_interval_of_their_own_spread():
    values = [0.1, -0.1] * 6
    assert half_width(values, 0.05, 0.95) == pytest.approx(2.2 * 0.104 / math.sqrt(12), rel=0.1)


def test_rates_that_jump_from_round_to_round_widen_the_interval_of_their_ratio():
    steady = pair_half_width([0.0, 0.0], [0.3, 0.3], 0.98)
    assert pair_half_width([0.0, 0.5], [0.3, 0.8], 0.98) > 2 * steady


def test_other_contenders_without_noise_narrow_the_interval_of_a_pair_in_drifting_rounds():
    ours, theirs, others = [0.5, 0.1, 0.9], [0.1, -0.3, 0.5], [[0.2, -0.2, 0.6], [0.3, -0.1, 0.7]]
    assert pair_half_width(ours, theirs, 0.99, others) < 0.5 * pair_half_width(ours, theirs, 0.99)


def test_contenders_of_fewer_rounds_count_with_their_rounds():
    ours, theirs = [0.5, 0.1, 0.9, 0.5], [0.1, -0.3, 0.5, 0.1]
    alone = pair_half_width(ours, theirs, 0.99)
    assert pair_half_width(ours, theirs, 0.99, [[0.2, -0.2]]) < alone
    assert pair_half_width(ours, theirs, 0.99, [[0.2]]) == alone


def test_an_erratic_contender_does_not_widen_the_interval_of_others():
    steady = pair_half_width([0.30, 0.31, 0.30], [0.0, 0.01, 0.01], 0.99)
    assert pair_half_width([0.30, 0.31, 0.30], [0.0, 0.01, 0.01], 0.99, [[0.9, -0.5, 0.3]]) == steady


def test_a_smaller_typical_spread_makes_few_rounds_narrower_and_many_hardly() -> None:
    two, ten = ([0.3, 0.301], [0.0, 0.0]), ([0.30, 0.34] * 5, [0.0, 0.0] * 5)
    assert pair_half_width(*two, 0.98, least_typical=0.02) < 0.6 * pair_half_width(*two, 0.98)
    assert pair_half_width(*ten, 0.98, least_typical=0.02) == pytest.approx(pair_half_width(*ten, 0.98), rel=0.1)


def test_rounds_that_differ_widen_the_interval_however_small_the_typical_spread() -> None:
    steady, jumping = ([0.3, 0.3], [0.0, 0.0]), ([0.3, 0.7], [0.0, 0.4])
    assert pair_half_width(*jumping, 0.98, least_typical=0.02) > 3 * pair_half_width(*steady, 0.98, least_typical=0.02)
