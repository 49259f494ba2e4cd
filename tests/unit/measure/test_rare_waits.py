import random

import pytest

from autotune.measure import rare_waits
from autotune.measure.block import data_wait_fraction
from autotune.measure.interval import estimate_rate
from autotune.measure.rare_waits import MISSED_WAITS, ExpectedWaits, expected_waits, rare_wait_error

from .simulated import loader_blocks, loader_run, make_block, make_build_times

NO_WAITS = ExpectedWaits(share=0.0, bout_s=0.0)


def waiting(*waits_s, duration_s=1.0):
    return [make_block(duration_s, data_wait_s=wait_s) for wait_s in waits_s]


def simulated(num_workers, prefetch_factor, sigma, load):
    """A loader of one batch each 20 ms; the step takes `load` times as long."""
    return {
        "num_workers": num_workers,
        "prefetch_factor": prefetch_factor,
        "batch_s": 0.02 * num_workers,
        "sigma": sigma,
        "compute_s": 0.02 * load,
        "compute_sigma": 0.02,
    }


def windows_of(loader, num_blocks, *, num=100):
    """As a trial has them: after one round of ramp, with what the workers built."""
    rng, num_workers = random.Random(3), loader["num_workers"]
    size = {"steps_per_block": num_workers, "num_ramp_steps": num_workers, "sees_workers": True}
    return [loader_blocks(rng, num_blocks, **size, **loader) for _ in range(num)]


def coverage(windows, truth):
    intervals = [estimate_rate(window).interval for window in windows]
    return sum(interval.low <= truth <= interval.high for interval in intervals) / len(intervals)


def coverages(monkeypatch, windows, truth):
    """Shares of the windows that cover the truth: with what the build times tell, and by the waits seen alone."""
    knowing = coverage(windows, truth)
    monkeypatch.setattr(rare_waits, "expected_waits", expecting_nothing)
    not_knowing = coverage(windows, truth)
    print(f"{knowing:.2f} of the windows cover the truth, {not_knowing:.2f} by the waits seen alone")
    return knowing, not_knowing


def expecting_nothing(blocks):
    return NO_WAITS


def test_so_many_waits_as_the_typical_one_may_have_been_missed():
    # One wait of 0.1 s and two of 0.2 s: a moment of waiting falls into one of (0.01 + 0.04 + 0.04) / 0.5 = 0.18 s.
    blocks = waiting(0.1, 0.2, 0.2, *[0.0] * 17)
    assert data_wait_fraction(blocks) == pytest.approx(0.025)
    assert rare_wait_error(blocks) == pytest.approx(MISSED_WAITS**0.5 * 0.18 / 20)


@pytest.mark.parametrize("wait_s", [0.0, 0.02, 0.1])
def test_what_every_block_waits_for_alike_is_not_rare(wait_s):
    assert rare_wait_error(waiting(*[wait_s] * 12)) == 0.0
    assert rare_wait_error([*waiting(wait_s), *waiting(2 * wait_s, duration_s=2.0)]) == pytest.approx(0.0)


def test_where_the_loader_binds_waits_are_the_rule():
    times = make_build_times(0.5, 1.0, 1.5)
    binding = [make_block(1.0, data_wait_s=wait_s, build_times=times) for wait_s in (0.1, 0.9, 0.2, 0.8)]
    assert expected_waits(binding).share > 0
    assert rare_wait_error(binding) == 0.0


def test_one_rare_wait_makes_a_steady_job_doubtful():
    steady, disturbed = waiting(*[0.0] * 20), waiting(0.3, *[0.0] * 19)
    assert estimate_rate(steady).half_width_ratio == 0.0
    # Twice the wait of 0.3 s in 20 s, times t of 19 degrees of freedom.
    assert estimate_rate(disturbed).half_width_ratio == pytest.approx(2.093 * 2 * 0.3 / 20, rel=1e-3)


def test_a_window_without_a_wait_is_doubtful_where_its_workers_are_in_balance_with_the_step():
    # 2 workers that take 0.5 and 1.5 s for a batch, a relative variance of 1/2 (of 4 batches 1/3), and 2 batches in the
    # step's second. Without a drift a worker with one batch of lead is pushed back at half the variance, both of them
    # for half as much again together: 1/6 s for every second. Bouts last a third of that batch's second.
    blocks = [make_block(1.0, build_times=make_build_times(0.5, 1.5)) for _ in range(2)]
    blocks = [make_block(0.5, build_times=block.build_times) for block in blocks]
    waits = expected_waits(blocks)
    assert waits.share == pytest.approx((1 / 6) / (1 / 6 + 1))
    assert waits.bout_s == pytest.approx(1 / 3)
    assert rare_wait_error(blocks) == pytest.approx((2 * waits.share * waits.bout_s / 1.0) ** 0.5)


@pytest.mark.parametrize("step_s", [0.1, 10.0])
def test_far_from_balance_no_rare_waits_are_expected(step_s):
    blocks = [make_block(step_s, build_times=make_build_times(0.9, 1.1)) for _ in range(8)]
    assert expected_waits(blocks).share == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    "times", [None, make_build_times(), make_build_times(1.0, 1.0)], ids=["unseen", "nothing built", "all alike"]
)
def test_of_workers_that_tell_nothing_no_waits_are_expected(times):
    assert expected_waits([make_block(0.5, build_times=times)] * 3) == NO_WAITS
    assert expected_waits([make_block(0.5, build_times=make_build_times(0.5, 1.5)), make_block(0.5)]) == NO_WAITS


@pytest.mark.parametrize(
    ("num_workers", "prefetch_factor", "sigma", "load"),
    [(1, 2, 0.5, 1.2), (2, 2, 0.3, 1.1), (4, 3, 0.5, 1.2), (8, 2, 0.3, 1.2), (8, 4, 0.5, 1.2), (16, 2, 0.3, 1.2)],
)
def test_the_waits_to_come_follow_from_the_build_times(num_workers, prefetch_factor, sigma, load):
    """Those of a long run, within a factor of two, though shares are from a hundredth to a fiftieth of the time."""
    loader = simulated(num_workers, prefetch_factor, sigma, load)
    size = {"steps_per_block": 20 * num_workers, "sees_workers": True}
    long = loader_blocks(random.Random(5), 200 // num_workers, **size, **loader)
    run = loader_run(random.Random(2), 40_000, **loader)
    busy_s = 40_000 * loader["compute_s"]
    truth = 1 - busy_s / run.done_s[-1]
    print(f"{truth:.2%} of the time is waited, {expected_waits(long).share:.2%} expected")
    assert 0.005 < truth < 0.05
    assert truth / 2 <= expected_waits(long).share <= 2 * truth


@pytest.mark.parametrize(
    ("num_workers", "sigma", "load", "num_blocks"),
    [(2, 0.1, 0.95, 18), (2, 0.3, 1.0, 40), (4, 0.1, 1.0, 40), (4, 0.3, 1.05, 40), (8, 0.3, 1.1, 18)],
)
def test_near_balance_the_interval_covers_the_truth_more_often(monkeypatch, num_workers, sigma, load, num_blocks):
    loader = simulated(num_workers, 2, sigma, load)
    truth = 30_000 / loader_run(random.Random(2), 30_000, **loader).done_s[-1]
    windows = windows_of(loader, num_blocks)
    allowing = coverage(windows, truth)
    monkeypatch.setattr(rare_waits, "MISSED_WAITS", 0.0)
    monkeypatch.setattr(rare_waits, "expected_waits", expecting_nothing)
    not_allowing = coverage(windows, truth)
    print(f"{allowing:.2f} of the windows cover the truth, {not_allowing:.2f} without what may have been missed")
    assert allowing >= 0.90
    assert allowing >= not_allowing + 0.03


@pytest.mark.parametrize(
    ("num_workers", "prefetch_factor", "sigma", "load", "num_blocks"),
    [(2, 2, 0.3, 1.1, 27), (4, 2, 0.3, 1.2, 18), (8, 2, 0.3, 1.2, 12), (8, 4, 0.5, 1.2, 18)],
)
def test_windows_that_saw_no_wait_know_by_their_workers_that_there_are_some(
    monkeypatch, num_workers, prefetch_factor, sigma, load, num_blocks
):
    """Loaders a tenth or a fifth faster than the step: often no wait is seen, and then what was seen tells nothing."""
    loader = simulated(num_workers, prefetch_factor, sigma, load)
    truth = 30_000 / loader_run(random.Random(2), 30_000, **loader).done_s[-1]
    windows = windows_of(loader, num_blocks)
    knowing, not_knowing = coverages(monkeypatch, windows, truth)
    assert knowing >= 0.87
    assert knowing >= not_knowing + 0.07


@pytest.mark.parametrize(("num_workers", "prefetch_factor", "load"), [(8, 2, 0.9), (4, 4, 0.9), (8, 4, 0.8)])
def test_a_queue_that_a_pause_has_filled_does_not_hide_a_loader_that_is_too_slow(
    monkeypatch, num_workers, prefetch_factor, load
):
    """For 8 blocks the step hardly waits, and is up to a tenth or a fourth faster than it will be."""
    loader = simulated(num_workers, prefetch_factor, 0.1, load)
    truth = 30_000 / loader_run(random.Random(2), 30_000, **loader).done_s[-1]
    windows = windows_of({**loader, "pause_s": 1.0}, 8, num=60)
    knowing, not_knowing = coverages(monkeypatch, windows, truth)
    assert knowing >= 0.8
    assert knowing >= not_knowing + 0.3


@pytest.mark.parametrize("load", [0.5, 1.5])
def test_far_from_balance_the_interval_is_no_wider(monkeypatch, load):
    windows = windows_of(simulated(4, 2, 0.1, load), 20, num=50)
    widths = [estimate_rate(window).half_width_ratio for window in windows]
    monkeypatch.setattr(rare_waits, "MISSED_WAITS", 0.0)
    monkeypatch.setattr(rare_waits, "expected_waits", expecting_nothing)
    assert widths == pytest.approx([estimate_rate(window).half_width_ratio for window in windows], rel=0.01)
