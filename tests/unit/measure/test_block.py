import math
from dataclasses import replace

import pytest

from autotune.measure.block import Block, Phase, data_wait_fraction, merge, rate_samples_per_second

from .simulated import make_block, make_build_times

BLOCK = Block(
    phase=Phase.WINDOW,
    num_steps=2,
    num_micro_batches=8,
    num_samples=250.5,
    duration_s=0.4,
    data_wait_s=0.1,
    num_skipped_steps=1,
    num_built=8.5,
    build_times=make_build_times(0.2, 0.3),
)


@pytest.mark.parametrize("name", ["num_steps", "num_micro_batches", "num_samples", "duration_s"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_a_block_of_nothing_cannot_be_made(name, value):
    with pytest.raises(ValueError, match=name):
        replace(BLOCK, **{name: value})


@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf])
def test_data_wait_is_finite_and_not_negative(value):
    with pytest.raises(ValueError, match="data_wait_s"):
        replace(BLOCK, data_wait_s=value)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_was_built_is_finite(value):
    assert replace(BLOCK, num_built=-0.25).num_built == -0.25
    with pytest.raises(ValueError, match="num_built"):
        replace(BLOCK, num_built=value)


def test_what_was_built_is_unknown_of_a_group_that_was_not_seen_whole():
    assert merge([BLOCK, replace(BLOCK, num_built=None)], 2)[0].num_built is None
    assert merge([BLOCK, replace(BLOCK, build_times=None)], 2)[0].build_times is None


def test_no_more_steps_are_skipped_than_taken():
    assert replace(BLOCK, num_skipped_steps=2).num_skipped_steps == 2
    with pytest.raises(ValueError, match="num_skipped_steps must be 0 to 2, not 3"):
        replace(BLOCK, num_skipped_steps=3)
    with pytest.raises(ValueError, match="num_skipped_steps"):
        replace(BLOCK, num_skipped_steps=-1)


def test_merging_adds_up_and_drops_the_trailing_group():
    merged = merge([BLOCK] * 5, 2)
    assert len(merged) == 2
    assert merged[0] == merged[1]
    assert merged[0] == Block(
        phase=Phase.WINDOW,
        num_steps=4,
        num_micro_batches=16,
        num_samples=501.0,
        duration_s=0.8,
        data_wait_s=0.2,
        num_skipped_steps=2,
        num_built=17.0,
        build_times=make_build_times(0.2, 0.3, 0.2, 0.3),
    )


def test_merging_keeps_the_order_of_time():
    merged = merge([make_block(duration_s) for duration_s in (1.0, 2.0, 4.0, 8.0)], 2)
    assert [block.duration_s for block in merged] == [3.0, 12.0]


def test_merging_by_one_changes_nothing_and_by_too_many_leaves_nothing():
    blocks = [make_block(1.0), make_block(2.0)]
    assert merge(blocks, 1) == tuple(blocks)
    assert merge(blocks, 3) == ()


def test_merging_by_less_than_one_is_refused():
    with pytest.raises(ValueError, match="factor"):
        merge([BLOCK], 0)


def test_blocks_of_different_phases_are_not_merged():
    with pytest.raises(ValueError, match="ramp, window"):
        merge([make_block(phase=Phase.RAMP), make_block(phase=Phase.WINDOW)], 2)


def test_the_rate_is_total_samples_over_total_time():
    # The mean of the rates would be (100 + 10) / 2 = 55.
    blocks = [make_block(1.0, 100.0), make_block(9.0, 90.0)]
    assert rate_samples_per_second(blocks) == pytest.approx(19.0)


def test_the_data_wait_fraction_is_total_wait_over_total_time():
    blocks = [make_block(1.0, data_wait_s=1.0), make_block(3.0, data_wait_s=0.0)]
    assert data_wait_fraction(blocks) == pytest.approx(0.25)


def test_the_data_wait_fraction_is_at_most_one_though_the_clocks_disagree():
    assert data_wait_fraction([make_block(1.0, data_wait_s=1.001)]) == 1.0


@pytest.mark.parametrize("estimator", [rate_samples_per_second, data_wait_fraction])
def test_nothing_is_estimated_from_no_blocks(estimator):
    with pytest.raises(ValueError, match="at least 1 block"):
        estimator([])
