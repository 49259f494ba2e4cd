import random

import pytest

from autotune.measure import rare_waits
from autotune.measure.block import data_wait_fraction
from autotune.measure.interval import estimate_rate
from autotune.measure.rare_waits import MISSED_WAITS, rare_wait_error

from .simulated import loader_blocks, loader_run, make_block


def waiting(*waits_s, duration_s=1.0):
    return [make_block(duration_s, data_wait_s=wait_s) for wait_s in waits_s]


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
    assert rare_wait_error(waiting(0.1, 0.9, 0.2, 0.8)) == 0.0


def test_one_rare_wait_makes_a_steady_job_doubtful():
    steady, disturbed = waiting(*[0.0] * 20), waiting(0.3, *[0.0] * 19)
    assert estimate_rate(steady).half_width_ratio == 0.0
    # Twice the wait of 0.3 s in 20 s, times t of 19 degrees of freedom.
    assert estimate_rate(disturbed).half_width_ratio == pytest.approx(2.093 * 2 * 0.3 / 20, rel=1e-3)


@pytest.mark.parametrize(
    ("num_workers", "sigma", "load", "num_blocks"),
    [(2, 0.1, 0.95, 18), (2, 0.3, 1.0, 40), (4, 0.1, 1.0, 40), (4, 0.3, 1.05, 40), (8, 0.3, 1.1, 18)],
)
def test_near_balance_the_interval_covers_the_truth_more_often(monkeypatch, num_workers, sigma, load, num_blocks):
    """As a trial has them: after one round of ramp, with what the workers built."""
    loader = {
        "num_workers": num_workers,
        "prefetch_factor": 2,
        "batch_s": 0.02 * num_workers,
        "sigma": sigma,
        "compute_s": 0.02 * load,
        "compute_sigma": 0.02,
    }
    truth = 60_000 / loader_run(random.Random(2), 60_000, **loader).done_s[-1]
    rng = random.Random(3)
    size = {"steps_per_block": num_workers, "num_ramp_steps": num_workers, "sees_workers": True}
    windows = [loader_blocks(rng, num_blocks, **size, **loader) for _ in range(150)]

    def coverage():
        intervals = [estimate_rate(window).interval for window in windows]
        return sum(interval.low <= truth <= interval.high for interval in intervals) / len(intervals)

    allowing = coverage()
    monkeypatch.setattr(rare_waits, "MISSED_WAITS", 0.0)
    not_allowing = coverage()
    print(f"{allowing:.2f} of the windows cover the truth, {not_allowing:.2f} without what may have been missed")
    assert allowing >= 0.88
    assert allowing >= not_allowing + 0.03


@pytest.mark.parametrize("load", [0.5, 1.5])
def test_far_from_balance_the_interval_is_no_wider(monkeypatch, load):
    loader = {"num_workers": 4, "prefetch_factor": 2, "batch_s": 0.08, "sigma": 0.1, "compute_s": 0.02 * load}
    windows = [loader_blocks(random.Random(n), 20, steps_per_block=4, compute_sigma=0.02, **loader) for n in range(50)]
    widths = [estimate_rate(window).half_width_ratio for window in windows]
    monkeypatch.setattr(rare_waits, "MISSED_WAITS", 0.0)
    assert widths == pytest.approx([estimate_rate(window).half_width_ratio for window in windows], rel=0.01)
