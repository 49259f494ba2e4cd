"""From the blocks of all ranks to the throughput of the trial."""

from __future__ import annotations

import pytest

from autotune.measure.block import Phase
from autotune.model.result import RankStatus
from autotune.runner.aggregate import MIN_BLOCKS, RACED_MARGIN, measurement_of
from tests.unit.runner.samples import block, rank


def test_one_rank_gives_its_own_rate_and_waits() -> None:
    measured = measurement_of([rank()])
    assert measured is not None
    assert measured.samples_per_second == pytest.approx(6400)
    assert measured.low == pytest.approx(6400) and measured.high == pytest.approx(6400)
    assert measured.data_wait_fraction == pytest.approx(0.2)
    assert measured.num_blocks == 12
    assert measured.window_s == pytest.approx(1.2)
    assert measured.compute_samples_per_second == 8000


def test_ranks_together_give_all_samples_over_the_slowest_ones_time() -> None:
    slow = rank(rank=1, world_size=2, blocks=(block(duration_s=0.2, data_wait_s=0.1),) * 12)
    measured = measurement_of([rank(world_size=2), slow])
    assert measured is not None
    assert measured.samples_per_second == pytest.approx(2 * 640 / 0.2)
    assert measured.data_wait_fraction == pytest.approx(0.5)
    assert measured.low == pytest.approx(6400) and measured.high == pytest.approx(6400)


def test_only_blocks_of_the_window_count() -> None:
    slow = [block(phase=phase, duration_s=5.0) for phase in (Phase.WARMUP, Phase.COMPUTE, Phase.RAMP)]
    measured = measurement_of([rank(blocks=(*slow, *(block(),) * 12))])
    assert measured is not None
    assert measured.samples_per_second == pytest.approx(6400)


def test_too_few_blocks_on_any_rank_give_no_measurement() -> None:
    few = rank(rank=1, world_size=2, blocks=(block(),) * (MIN_BLOCKS - 1))
    assert measurement_of([rank(world_size=2), few]) is None


def test_a_wait_longer_than_the_time_is_all_of_it() -> None:
    measured = measurement_of([rank(blocks=(block(data_wait_s=0.11),) * 12)])
    assert measured is not None
    assert measured.data_wait_fraction == 1.0


def test_a_race_lost_before_the_window_leaves_the_rate_of_the_fastest_step_as_a_bound() -> None:
    compute = [block(phase=Phase.COMPUTE, duration_s=s, data_wait_s=0.0) for s in (0.1, 0.08, 0.2)]
    measured = measurement_of(
        [rank(status=RankStatus.RACED_OUT, blocks=tuple(compute), compute_samples_per_second=5e3)]
    )
    assert measured is not None
    assert measured.samples_per_second == pytest.approx(8000)
    assert measured.high == pytest.approx(8000 * (1 + RACED_MARGIN))
    assert measured.low < 5000
    assert measured.num_blocks == 0


def test_a_race_lost_without_a_compute_block_leaves_nothing() -> None:
    assert measurement_of([rank(status=RankStatus.RACED_OUT, blocks=())]) is None


def test_the_compute_rate_is_unknown_when_one_rank_does_not_know_it() -> None:
    unknown = rank(rank=1, world_size=2, compute_samples_per_second=None)
    measured = measurement_of([rank(world_size=2), unknown])
    assert measured is not None
    assert measured.compute_samples_per_second is None


def test_the_compute_rate_of_several_ranks_is_that_of_the_slowest_times_their_number() -> None:
    slow = rank(rank=1, world_size=2, compute_samples_per_second=3000.0)
    measured = measurement_of([rank(world_size=2), slow])
    assert measured is not None
    assert measured.compute_samples_per_second == 6000


def test_convergence_holds_for_all_ranks_and_priming_for_any() -> None:
    other = rank(rank=1, world_size=2, is_converged=False, is_primed=True)
    measured = measurement_of([rank(world_size=2), other])
    assert measured is not None
    assert not measured.is_converged
    assert measured.is_primed
