import random
import statistics
from dataclasses import replace

import pytest

from autotune.measure.block import rate_samples_per_second
from autotune.measure.build_rate import (
    BOUND_WAIT,
    BUILT_WEIGHT,
    LEAST_SHARE,
    UNBOUND_WAIT,
    binding_share,
    steady_blocks,
    steady_factor,
)
from autotune.measure.interval import estimate_rate
from autotune.measure.rare_waits import rare_wait_error

from .simulated import loader_blocks, loader_run, make_block


def seen(num_built, *, data_wait_s, duration_s=1.0):
    return make_block(duration_s, 32.0, data_wait_s=data_wait_s, num_built=num_built)


@pytest.mark.parametrize("figure", [steady_factor, steady_blocks, binding_share, rare_wait_error])
def test_without_a_block_nothing_is_said(figure):
    with pytest.raises(ValueError, match="at least 1 block"):
        figure([])


@pytest.mark.parametrize("wait_s", [BOUND_WAIT, 1.0])
def test_what_was_built_counts_for_most_where_the_loader_binds(wait_s):
    window = [seen(1.1, data_wait_s=wait_s), seen(1.3, data_wait_s=wait_s)]
    assert steady_factor(window) == pytest.approx(1 + 0.2 * BUILT_WEIGHT)


@pytest.mark.parametrize("wait_s", [0.0, UNBOUND_WAIT])
def test_a_queue_that_fills_while_compute_binds_does_not_count(wait_s):
    assert steady_factor([seen(2.0, data_wait_s=wait_s)]) == 1.0


def test_between_the_two_there_is_no_jump():
    middle = (UNBOUND_WAIT + BOUND_WAIT) / 2
    assert steady_factor([seen(2.0, data_wait_s=middle)]) == pytest.approx(1 + BUILT_WEIGHT / 2)


def test_where_one_block_was_not_seen_the_delivered_rate_stands():
    assert steady_factor([seen(2.0, data_wait_s=1.0), seen(None, data_wait_s=1.0)]) == 1.0


def test_a_queue_that_is_used_up_lowers_the_rate_but_never_to_nothing():
    assert steady_factor([seen(0.5, data_wait_s=1.0)]) == pytest.approx(1 - BUILT_WEIGHT / 2)
    assert steady_factor([seen(-0.1, data_wait_s=1.0)]) == pytest.approx(1 - BUILT_WEIGHT)


def test_the_estimate_and_its_interval_are_those_of_the_steady_rate():
    blocks = [seen(1.1, data_wait_s=seconds, duration_s=seconds) for seconds in (1.0, 1.1) * 6]
    estimate = estimate_rate(blocks)
    assert estimate.samples_per_second == pytest.approx(rate_samples_per_second(blocks) * (1 + 0.1 * BUILT_WEIGHT))
    interval = estimate.interval
    assert (interval.low + interval.high) / 2 == pytest.approx(estimate.samples_per_second)
    assert interval.half_width_ratio == pytest.approx(estimate.half_width_ratio)


@pytest.mark.parametrize(("num_workers", "prefetch_factor"), [(4, 2), (8, 2), (8, 4)])
@pytest.mark.parametrize("load", [0.1, 0.5, 0.9, 1.3])
def test_a_short_window_finds_the_rate_of_a_long_one_though_its_workers_start_in_phase(
    num_workers, prefetch_factor, load
):
    """80 batches after one round of ramp, as a trial has them, against 600 after 100."""
    rng = random.Random(7)
    loader = {
        "num_workers": num_workers,
        "prefetch_factor": prefetch_factor,
        "batch_s": 0.02 * num_workers,
        "sigma": 0.1,
        "compute_s": 0.02 * load,
    }
    size = {"steps_per_block": num_workers, "num_ramp_steps": num_workers}
    later = [loader_blocks(rng, 700 // num_workers, **size, **loader)[100 // num_workers :] for _ in range(40)]
    truth = statistics.harmonic_mean(map(rate_samples_per_second, later))
    windows = [loader_blocks(rng, 80 // num_workers, **size, **loader, sees_workers=True) for _ in range(200)]
    delivered = [rate_samples_per_second(window) / truth - 1 for window in windows]
    steady = [rate_samples_per_second(window) * steady_factor(window) / truth - 1 for window in windows]
    assert abs(statistics.fmean(steady)) < 0.01
    assert statistics.stdev(steady) <= statistics.stdev(delivered) + 1e-4
    if load == 0.1:
        assert abs(statistics.fmean(steady)) < 0.6 * abs(statistics.fmean(delivered))


def test_steady_blocks_add_up_to_the_steady_rate():
    blocks = [seen(num_built, data_wait_s=0.15) for num_built in (0.5, 1.5, 1.3)]
    steady = rate_samples_per_second(blocks) * steady_factor(blocks)
    assert rate_samples_per_second(steady_blocks(blocks)) == pytest.approx(steady)
    assert [block.duration_s for block in steady_blocks(blocks)] == [1.0] * 3


def test_a_block_in_which_nothing_was_built_still_has_samples():
    assert steady_blocks([seen(-1.0, data_wait_s=1.0)])[0].num_samples == pytest.approx(32.0 * LEAST_SHARE)


@pytest.mark.parametrize("blocks", [[seen(2.0, data_wait_s=0.0)], [seen(2.0, data_wait_s=1.0), make_block()]])
def test_blocks_that_compute_binds_or_nobody_saw_stay_as_they_are(blocks):
    assert steady_blocks(blocks) == blocks


@pytest.mark.parametrize(
    ("num_workers", "prefetch_factor", "sigma"), [(2, 2, 0.1), (4, 2, 0.1), (8, 2, 0.1), (8, 4, 0.3)]
)
def test_the_interval_of_a_loader_that_binds_is_as_wide_as_its_errors(num_workers, prefetch_factor, sigma):
    """As a trial has them, 16 blocks after one round of ramp; by what was delivered it is twice as wide for nothing."""
    loader = {
        "num_workers": num_workers,
        "prefetch_factor": prefetch_factor,
        "batch_s": 0.02 * num_workers,
        "sigma": sigma,
        "compute_s": 0.006,
    }
    truth = 30_000 / loader_run(random.Random(2), 30_000, **loader).done_s[-1]
    rng = random.Random(3)
    size = {"steps_per_block": num_workers, "num_ramp_steps": num_workers, "sees_workers": True}
    windows = [loader_blocks(rng, 16, **size, **loader) for _ in range(120)]
    intervals = [estimate_rate(window).interval for window in windows]
    unseen = [estimate_rate([replace(block, num_built=None) for block in window]).interval for window in windows]
    covered = sum(interval.low <= truth <= interval.high for interval in intervals) / len(windows)
    width = statistics.fmean(interval.half_width_ratio for interval in intervals)
    delivered_width = statistics.fmean(interval.half_width_ratio for interval in unseen)
    print(f"{covered:.2f} hold, +-{width:.1%}, and by what was delivered +-{delivered_width:.1%}")
    assert covered >= 0.9
    assert width < 0.8 * delivered_width
