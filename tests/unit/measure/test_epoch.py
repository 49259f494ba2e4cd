import pytest

from autotune.measure.block import Phase
from autotune.measure.epoch import (
    NEGLIGIBLE_RESTART_SHARE,
    amortised_rate,
    estimated_restart_s,
    is_worth_restarting,
    last_round_s,
    restart_cost_s,
    restart_micro_batches,
    saved_by_queues_s,
)

from .simulated import make_block


def worth(**changes):
    values = {
        "epoch_micro_batches": 100,
        "micro_step_s": 0.02,
        "first_batch_s": 0.3,
        "num_workers": 4,
        "num_queued": 8,
        "num_watched": 8,
        "data_wait_fraction": 0.5,
        "limit_s": 8.0,
    }
    return is_worth_restarting(**{**values, **changes})


def test_a_restart_of_half_an_epochs_time_costs_a_third_of_the_rate():
    assert amortised_rate(300.0, restart_s=1.0, epoch_s=2.0) == pytest.approx(200.0)


def test_a_restart_that_costs_nothing_leaves_the_steady_rate():
    assert amortised_rate(300.0, restart_s=0.0, epoch_s=2.0) == 300.0


@pytest.mark.parametrize(("restart_s", "epoch_s"), [(-0.1, 1.0), (float("nan"), 1.0), (0.1, 0.0)])
def test_impossible_times_are_refused(restart_s, epoch_s):
    with pytest.raises(ValueError, match="an epoch needs"):
        amortised_rate(300.0, restart_s=restart_s, epoch_s=epoch_s)


def test_the_cost_is_what_the_steady_time_of_the_same_batches_does_not_explain():
    after = make_block(0.5, phase=Phase.RESTART)  # one micro-batch
    assert restart_cost_s(after, end_s=0.1, micro_step_s=0.02) == pytest.approx(0.58)


def test_a_restart_that_seems_to_save_time_costs_nothing():
    assert restart_cost_s(make_block(0.01, phase=Phase.RESTART), end_s=0.0, micro_step_s=0.02) == 0.0


@pytest.mark.parametrize(
    ("wait", "micro_step_s", "compute_s", "saved_s"),
    [
        (0.0, 0.041, 0.030, 8 * 0.011),
        (0.04, 0.041, 0.030, 8 * (0.96 * 0.041 - 0.030)),
        (0.9, 0.1, 0.01, 0.0),
        (0.0, 0.03, 0.04, 0.0),
    ],
)
def test_full_queues_save_what_busy_workers_cost_a_step(wait, micro_step_s, compute_s, saved_s):
    saved = saved_by_queues_s(8, data_wait_fraction=wait, micro_step_s=micro_step_s, compute_micro_step_s=compute_s)
    assert saved == pytest.approx(saved_s)


@pytest.mark.parametrize(
    ("num_workers", "per_step", "epoch", "expected"),
    [(1, 1, None, 2), (4, 1, 100, 8), (4, 3, None, 9), (0, 2, None, 2), (4, 1, 2, 2), (4, 2, 4, 4), (8, 4, 9, 16)],
)
def test_every_worker_is_seen_twice_within_an_epoch_in_whole_optimizer_steps(num_workers, per_step, epoch, expected):
    assert restart_micro_batches(num_workers, per_step, epoch_micro_batches=epoch) == expected


def test_a_short_epoch_of_long_steps_is_restarted_where_no_batch_has_to_be_built_first():
    """Two batches of 14 s on four workers, which may hold eight ready."""
    short = {"epoch_micro_batches": 2, "num_watched": 2, "micro_step_s": 14.0, "first_batch_s": 1.0, "limit_s": 90.0}
    assert worth(**short, data_wait_fraction=0.0)
    assert not worth(**short, data_wait_fraction=0.3), "eight batches to build"
    assert not worth(**{**short, "limit_s": 80.0}, data_wait_fraction=0.0), "each worker is at work on one"
    assert not worth(**{**short, "num_watched": 8}, data_wait_fraction=0.0)


def test_a_restart_that_is_nothing_beside_its_epoch_is_not_looked_at():
    epoch_s = 0.3 / NEGLIGIBLE_RESTART_SHARE
    assert worth(epoch_micro_batches=int(0.9 * epoch_s / 0.02))
    assert not worth(epoch_micro_batches=int(1.1 * epoch_s / 0.02))


@pytest.mark.parametrize(("wait", "expected"), [(0.0, 0.5), (0.5, 0.46), (1.0, 0.42)])
def test_a_job_that_waits_for_its_loader_gets_a_cycle_of_its_workers_back(wait, expected):
    estimate = estimated_restart_s(first_batch_s=0.5, data_wait_fraction=wait, num_workers=4, micro_step_s=0.02)
    assert estimate == pytest.approx(expected)


def test_an_estimate_is_never_negative():
    assert estimated_restart_s(first_batch_s=0.01, data_wait_fraction=1.0, num_workers=4, micro_step_s=0.02) == 0.0


LAST_ROUND = {"num_workers": 8, "data_wait_fraction": 1.0, "micro_step_s": 0.01}


@pytest.mark.parametrize(("num_micro_batches", "idle"), [(48, 0), (50, 6), (1, 7)])
def test_workers_without_a_batch_in_the_last_round_cost_their_share_of_it(num_micro_batches, idle):
    """50 batches of 8 workers that take 80 ms each take 7 rounds, 560 ms, and not 50 times 10 ms."""
    assert last_round_s(num_micro_batches, **LAST_ROUND) == pytest.approx(idle * 0.01)


@pytest.mark.parametrize("spread_s", [0.0, 0.04, 0.08, 0.16, 0.4])
def test_the_last_round_ends_when_the_later_of_two_workers_does(spread_s):
    """Worker k of 8 begins k eighths of the spread after the first; 50 batches are 6 rounds, and 2 more batches."""
    ends_s = [spread_s * (k + 1) / 8 + 0.08 * (7 if k < 2 else 6) for k in range(8)]
    beyond_s = max(ends_s) - spread_s - 0.5
    assert last_round_s(50, **LAST_ROUND, spread_s=spread_s) == pytest.approx(beyond_s)


@pytest.mark.parametrize("changes", [{"num_workers": 0}, {"num_workers": 1}, {"data_wait_fraction": 0.0}])
def test_a_job_without_workers_that_it_waits_for_loses_nothing_in_the_last_round(changes):
    assert last_round_s(50, **{**LAST_ROUND, **changes}) == 0.0
