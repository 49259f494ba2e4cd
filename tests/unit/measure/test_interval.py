import math
import random

import pytest

from autotune.measure import interval
from autotune.measure.block import Phase, rate_samples_per_second
from autotune.measure.interval import Interval, estimate_rate

from .simulated import loader_blocks, loader_run, make_block, make_blocks


def test_the_half_width_of_an_interval_is_relative_to_its_centre():
    assert Interval(low=90.0, high=110.0).half_width_ratio == pytest.approx(0.1)
    assert Interval(low=0.0, high=0.0).half_width_ratio == 0.0


@pytest.mark.parametrize(("low", "high"), [(2.0, 1.0), (-1.0, 1.0), (math.nan, 1.0), (0.0, math.nan), (0.0, math.inf)])
def test_an_impossible_interval_cannot_be_made(low, high):
    with pytest.raises(ValueError, match="low <= high"):
        Interval(low=low, high=high)


def test_the_interval_is_the_one_computed_by_hand():
    # 40 samples in 4 s: 10 per second. Residuals 9 - 10 = -1 and 11 - 10 = 1, twice: their sum of squares is 4.
    # The standard error of the rate is sqrt(4 * 4/3) / 4 s = 0.57735; t of 3 degrees is 3.18245.
    blocks = [make_block(1.0, num_samples) for num_samples in (9.0, 11.0, 11.0, 9.0)]
    estimate = estimate_rate(blocks)
    assert estimate.samples_per_second == pytest.approx(10.0)
    assert estimate.interval.low == pytest.approx(10.0 - 1.8373863, rel=1e-6)
    assert estimate.interval.high == pytest.approx(10.0 + 1.8373863, rel=1e-6)
    assert estimate.half_width_ratio == pytest.approx(0.18373863, rel=1e-6)
    assert estimate.interval.half_width_ratio == pytest.approx(estimate.half_width_ratio)
    assert (estimate.num_blocks, estimate.merged_factor) == (4, 1)
    # Deviations -1, 1, 1, -1: products -1 + 1 - 1 = -1, over 4.
    assert estimate.lag1_autocorrelation == pytest.approx(-0.25)


def test_blocks_of_unequal_length_but_one_rate_leave_no_doubt():
    blocks = [make_block(1.0, 10.0), make_block(3.0, 30.0), make_block(0.5, 5.0)]
    estimate = estimate_rate(blocks)
    assert estimate.samples_per_second == pytest.approx(10.0)
    assert estimate.half_width_ratio == pytest.approx(0.0, abs=1e-12)


def test_constant_blocks_have_no_width_and_no_autocorrelation():
    estimate = estimate_rate([make_block(0.25, 8.0)] * 20)
    assert estimate.interval == Interval(low=32.0, high=32.0)
    assert estimate.lag1_autocorrelation == 0.0
    assert not estimate.nonstationary


def test_the_low_end_is_never_negative_and_the_width_still_honest():
    estimate = estimate_rate([make_block(1.0, 1.0), make_block(1.0, 9.0)])
    assert estimate.interval.low == 0.0
    # Residuals -4 and 4; error sqrt(32 * 2/1) / 2 s = 4; times 12.7062 over a rate of 5.
    assert estimate.half_width_ratio == pytest.approx(12.7062047 * 4 / 5)


def test_more_confidence_is_wider():
    blocks = make_blocks([0.1, 0.11, 0.09, 0.12])
    assert estimate_rate(blocks, 0.99).half_width_ratio > estimate_rate(blocks, 0.95).half_width_ratio


@pytest.mark.parametrize("num_blocks", [0, 1])
def test_one_block_is_not_enough(num_blocks):
    with pytest.raises(ValueError, match=f"at least 2 blocks, not {num_blocks}"):
        estimate_rate(make_blocks([0.1] * num_blocks))


@pytest.mark.parametrize("confidence", [0.0, 1.0, math.nan])
def test_an_impossible_confidence_is_refused(confidence):
    with pytest.raises(ValueError, match="confidence"):
        estimate_rate(make_blocks([0.1, 0.1]), confidence)


def test_ramp_and_window_are_not_estimated_together():
    with pytest.raises(ValueError, match="one phase"):
        estimate_rate([make_block(phase=Phase.RAMP), make_block(), make_block()])


def test_blocks_that_correlate_are_merged_down_to_eight():
    slow_waves = make_blocks(0.1 + 0.02 * math.sin(2 * math.pi * i / 64) for i in range(67))
    estimate = estimate_rate(slow_waves)
    assert (estimate.merged_factor, estimate.num_blocks) == (8, 8)
    assert estimate.samples_per_second == rate_samples_per_second(slow_waves)  # the 3 left over count in the rate


def test_fewer_than_sixteen_blocks_are_never_merged():
    rising = make_blocks(0.1 + 0.001 * i for i in range(15))
    estimate = estimate_rate(rising)
    assert estimate.lag1_autocorrelation > 0.5
    assert (estimate.merged_factor, estimate.num_blocks) == (1, 15)


def test_blocks_that_correlate_no_more_than_chance_are_not_merged():
    # Of the 15 pairs of neighbours 8 deviate alike and 7 apart, all by the same: 1/16, and chance is 1/4.
    estimate = estimate_rate(make_blocks([0.1, 0.1, 0.12, 0.12] * 4))
    assert estimate.lag1_autocorrelation == pytest.approx(1 / 16)
    assert estimate.merged_factor == 1


def test_blocks_that_are_clearly_parts_of_a_cycle_are_merged_into_whole_ones():
    assert estimate_rate(make_blocks([0.1, 0.12] * 16)).merged_factor == 2
    assert estimate_rate(make_blocks([0.1, 0.1, 0.1, 0.2] * 10)).merged_factor == 4
    # A quarter below zero may be chance: 1.5 over the root of 20 is a third.
    by_chance = estimate_rate(make_blocks([0.1, 0.12] * 3 + [0.1, 0.1, 0.12, 0.12] * 3 + [0.1, 0.1]))
    assert by_chance.lag1_autocorrelation == pytest.approx(-0.25, abs=0.05)
    assert by_chance.merged_factor == 1


def test_a_jump_between_the_halves_is_nonstationary():
    first, second = [0.100, 0.101, 0.099, 0.100], [0.110, 0.111, 0.109, 0.110]
    assert estimate_rate(make_blocks(first + second)).nonstationary
    assert estimate_rate(make_blocks(second + first)).nonstationary
    assert not estimate_rate(make_blocks(first + first)).nonstationary


def test_a_jump_within_the_noise_is_stationary():
    first, second = [0.10, 0.12, 0.08, 0.10], [0.11, 0.13, 0.09, 0.11]
    assert not estimate_rate(make_blocks(first + second)).nonstationary


def test_a_jump_of_less_than_half_a_percent_is_stationary_however_steady_the_job():
    assert not estimate_rate(make_blocks([0.1] * 4 + [0.1004] * 4)).nonstationary
    assert estimate_rate(make_blocks([0.1] * 4 + [0.1006] * 4)).nonstationary


def test_fewer_than_eight_blocks_are_not_judged_nonstationary():
    assert not estimate_rate(make_blocks([0.1] * 3 + [0.2] * 3)).nonstationary


def _coverage(make_sample, truth, num_replications):
    covered = 0
    for _ in range(num_replications):
        found = estimate_rate(make_sample()).interval
        covered += found.low <= truth <= found.high
    return covered / num_replications


def test_the_interval_of_independent_blocks_covers_the_truth_as_often_as_it_says():
    rng = random.Random(1)
    coverage = _coverage(lambda: make_blocks(rng.gauss(0.1, 0.01) for _ in range(12)), 32 / 0.1, 1000)
    assert 0.93 <= coverage <= 0.97


def _simulated_loader(num_workers, sigma, compute_s):
    return {
        "num_workers": num_workers,
        "prefetch_factor": 2,
        "batch_s": 0.02 * num_workers,  # so the loader delivers one batch each 20 ms
        "sigma": sigma,
        "compute_s": compute_s,
        "compute_sigma": 0.02,
    }


def _long_run_rate(loader):
    return 40_000 / loader_run(random.Random(2), 40_000, **loader).done_s[-1]


@pytest.mark.parametrize(
    ("num_workers", "sigma", "compute_s", "num_blocks"),
    [
        (4, 0.05, 0.005, 8),  # far loader-bound, steady batches
        (4, 0.05, 0.005, 16),
        (8, 0.3, 0.005, 20),  # far loader-bound, uneven batches
        (8, 0.3, 0.018, 20),  # near balance
        (4, 0.3, 0.030, 16),  # compute-bound
    ],
)
def test_the_interval_of_a_bursty_loader_covers_the_truth(num_workers, sigma, compute_s, num_blocks):
    loader = _simulated_loader(num_workers, sigma, compute_s)
    rng = random.Random(3)
    coverage = _coverage(
        lambda: loader_blocks(rng, num_blocks, steps_per_block=num_workers, **loader), _long_run_rate(loader), 300
    )
    assert coverage >= 0.90


def test_a_wait_too_rare_for_the_window_is_not_in_the_interval_but_costs_little():
    """A loader 20 % faster than the step makes it wait now and then; many windows of 64 steps see no such wait."""
    loader = _simulated_loader(4, 0.3, 0.024)
    truth = _long_run_rate(loader)
    rng = random.Random(3)
    estimates = [estimate_rate(loader_blocks(rng, 16, steps_per_block=4, **loader)) for _ in range(300)]
    errors = sorted(abs(estimate.samples_per_second / truth - 1) for estimate in estimates)
    assert errors[150] < 0.01
    assert errors[285] < 0.03


def test_merging_restores_the_coverage_that_slow_waves_take_away(monkeypatch):
    def blocks(rng):
        deviation, durations_s = 0.0, []
        for _ in range(128):
            deviation = 0.6 * deviation + rng.gauss(0, 0.01)
            durations_s.append(0.1 + deviation)
        return make_blocks(durations_s)

    rng = random.Random(4)
    assert _coverage(lambda: blocks(rng), 32 / 0.1, 300) >= 0.90
    monkeypatch.setattr(interval, "MIN_MERGED_BLOCKS", 1000)
    rng = random.Random(4)
    assert _coverage(lambda: blocks(rng), 32 / 0.1, 300) < 0.80


def test_a_cycle_that_a_window_cuts_in_two_leaves_doubt():
    whole = estimate_rate(make_blocks([0.05, 0.55] * 13))
    cut = estimate_rate(make_blocks([*[0.05, 0.55] * 13, 0.05]))
    assert whole.half_width_ratio == pytest.approx(0.0, abs=1e-9)
    assert cut.interval.low <= whole.samples_per_second < cut.samples_per_second


@pytest.mark.parametrize("num_steps_between", [10, 20])
def test_what_a_script_does_every_few_steps_leaves_no_doubt_about_the_rate(num_steps_between):
    """A validation of three steps' time each so many steps, in blocks of five: it falls into each second or fourth."""

    def steps_s(rng):
        while True:
            for step in range(num_steps_between):
                yield rng.gauss(0.01, 0.0002) + (0.03 if step == 3 else 0.0)

    def blocks(rng):
        steps = steps_s(rng)
        return make_blocks([sum(next(steps) for _ in range(5)) for _ in range(40)])

    truth = 32.0 / (5 * (0.01 + 0.03 / num_steps_between))
    rng = random.Random(6)
    estimates = [estimate_rate(blocks(rng)) for _ in range(100)]
    assert max(estimate.half_width_ratio for estimate in estimates) < 0.01
    assert sum(each.interval.low <= truth <= each.interval.high for each in estimates) >= 90


def test_blocks_of_whole_worker_cycles_are_far_narrower_than_single_steps():
    loader = {"num_workers": 5, "prefetch_factor": 2, "batch_s": 0.1, "sigma": 0.05, "compute_s": 0.002}
    by_cycle = estimate_rate(loader_blocks(random.Random(5), 16, steps_per_block=5, **loader))
    by_step = estimate_rate(loader_blocks(random.Random(5), 80, steps_per_block=1, **loader))
    assert by_step.samples_per_second == pytest.approx(by_cycle.samples_per_second)
    assert by_step.half_width_ratio > 5 * by_cycle.half_width_ratio
