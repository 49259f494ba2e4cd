import math
import statistics
from dataclasses import replace

import pytest

from .simulated import make_build_times


def test_mean_and_variance_are_those_of_the_single_times():
    times_s = [0.8, 1.0, 1.3, 0.9]
    assert make_build_times(*times_s).mean_s == pytest.approx(1.0)
    assert make_build_times(*times_s).relative_variance == pytest.approx(statistics.variance(times_s))
    assert make_build_times(*(10 * time_s for time_s in times_s)).relative_variance == pytest.approx(
        statistics.variance(times_s)
    )


def test_too_few_batches_have_no_variance():
    assert make_build_times().mean_s == 0.0
    assert [make_build_times(*times_s).relative_variance for times_s in [(), (1.0,), (0.0, 0.0)]] == [0.0, 0.0, 0.0]


def test_equal_times_have_no_variance_though_floats_do_not_cancel():
    assert make_build_times(*[0.1] * 7).relative_variance == pytest.approx(0.0, abs=1e-12)


def test_two_times_together_are_the_batches_of_both_and_can_be_told_apart_again():
    first, second = make_build_times(1.0, 2.0), make_build_times(4.0)
    both = first.plus(second)
    assert both == make_build_times(1.0, 2.0, 4.0)
    assert both.since(first) == second


@pytest.mark.parametrize(
    "change",
    [
        {"num_workers": 0},
        {"prefetch_factor": 0},
        {"num_finished": -1},
        {"total_s": -0.1},
        {"total_s": math.nan},
        {"total_squared_s2": math.inf},
    ],
)
def test_impossible_times_cannot_be_made(change):
    with pytest.raises(ValueError, match="build times"):
        replace(make_build_times(1.0), **change)
