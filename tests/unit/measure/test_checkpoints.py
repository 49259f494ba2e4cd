"""Blocks with a checkpoint, which no window's rate includes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.measure.block import Block, Phase, merge, rate_samples_per_second
from autotune.measure.checkpoints import without_checkpoints
from autotune.measure.window_stopping import StopReason, WindowRule, decide
from tests.unit.measure.simulated import make_block


def window(durations_s: list[float], saved: tuple[int, ...] = ()) -> list[Block]:
    return [
        replace(make_block(duration_s=duration_s), num_saves=int(number in saved))
        for number, duration_s in enumerate(durations_s)
    ]


def test_a_window_without_a_checkpoint_stays_as_it_is_however_long_a_block_is() -> None:
    given = window([0.1] * 20 + [2.0])
    assert without_checkpoints([given]) == [given]


def test_a_block_with_a_checkpoint_is_left_out() -> None:
    given = window([0.1] * 20 + [2.0], saved=(20,))
    assert without_checkpoints([given]) == [given[:20]]


def test_another_rank_loses_the_block_in_which_it_waited_and_no_more() -> None:
    saving = window([0.1] * 5 + [2.0] + [0.1] * 15, saved=(5,))
    waiting = window([0.1] * 6 + [1.9] + [0.1] * 12 + [0.3])
    kept = without_checkpoints([saving, waiting])
    assert [block.duration_s for block in kept[0]] == [0.1] * 20
    assert [block.duration_s for block in kept[1]] == [0.1] * 18 + [0.3]


def test_another_rank_with_a_short_save_of_its_own_loses_the_block_in_which_it_waited() -> None:
    """Every rank of the Trainer saves the state of its random numbers, and then waits for the rank with the model."""
    saving = window([0.04] * 109 + [1.44] + [0.04] * 4, saved=(109,))
    waiting = window([0.04] * 109 + [0.056, 1.42] + [0.04] * 3, saved=(109,))
    assert [block.duration_s for block in without_checkpoints([saving, waiting])[1]] == [0.04] * 112


def test_a_short_save_hides_no_stall() -> None:
    """A script that saves fast still pays for the waits of its loader, with one rank and with several."""
    stalling = window([0.1] * 40 + [0.11] + [0.1] * 20 + [0.5] + [0.1] * 5, saved=(40,))
    for ranks in ([stalling], [stalling, stalling]):
        assert all(max(block.duration_s for block in kept) == 0.5 for kept in without_checkpoints(ranks))


def test_a_rank_that_has_not_waited_keeps_all_blocks() -> None:
    saving, other = window([0.1] * 20 + [0.2], saved=(20,)), window([0.1] * 20 + [0.15])
    assert without_checkpoints([saving, other]) == [saving[:20], other]


def test_the_only_save_of_a_measurement_is_left_out_of_few_blocks() -> None:
    """Steps of a second: eight make a window."""
    given = window([1.0] * 7 + [3.0], saved=(7,))
    assert without_checkpoints([given]) == [given[:7]]


@pytest.mark.parametrize(
    "given",
    [window([0.1] * 8 + [2.0] * 2, saved=(8, 9)), window([0.1, 0.1, 0.1, 2.0], saved=(3,)), window([0.1], saved=(0,))],
    ids=["too-often", "too-few-blocks", "one-block"],
)
def test_a_window_with_many_saves_or_few_blocks_keeps_all(given: list[Block]) -> None:
    assert without_checkpoints([given]) == [given]


def test_a_script_that_saved_before_the_window_too_pays_for_the_save_within_few_blocks() -> None:
    warm_up = [replace(block, phase=Phase.WARMUP) for block in window([1.0, 3.0], saved=(1,))]
    given = window([1.0] * 7 + [3.0], saved=(7,))
    assert without_checkpoints([[*warm_up, *given]]) == [given]


RULE = WindowRule(half_width_ratio=0.05, min_window_s=0.3)


def decided(window: list[Block], before: list[Block], incumbent: float | None = None) -> StopReason | None:
    """The decision on a window after other phases."""
    (counted,) = without_checkpoints([[*before, *window]])
    return decide(window, RULE, incumbent, counted)


def test_a_save_neither_loses_a_race_nor_makes_a_window_longer() -> None:
    steps_s = [0.05, 0.051, 0.049, 0.051, 0.05, 0.049, 0.051]
    saving = window([*steps_s, 2.0], saved=(7,))
    incumbent = 0.8 * rate_samples_per_second(saving[:7])
    assert decided(saving, [], incumbent) is StopReason.CONVERGED
    assert decided(window([*steps_s, 2.0]), [], incumbent) is StopReason.RACED_OUT


def test_a_window_whose_rate_will_include_a_save_has_not_converged() -> None:
    """A save in the warm-up shows that more are to come, and one of eight blocks cannot be left out."""
    warm_up = [replace(block, phase=Phase.WARMUP) for block in window([0.05, 2.0], saved=(1,))]
    saving = window([0.05] * 7 + [2.0], saved=(7,))
    incumbent = 0.8 * rate_samples_per_second(saving[:7])
    assert decided(saving, [], incumbent) is StopReason.CONVERGED
    assert decided(saving, warm_up, incumbent) is None


def test_a_window_out_of_time_lasts_until_enough_blocks_without_a_save_are_there() -> None:
    blocks = window([1.5, 1.5, 11.5, 1.5, 1.6], saved=(2,))
    assert decided(blocks[:4], []) is None
    assert decided(blocks, []) is StopReason.TIME_LIMIT
    assert without_checkpoints([blocks]) == [[*blocks[:2], *blocks[3:]]]


def test_the_first_save_of_one_rank_after_a_save_of_another_is_not_the_only_one() -> None:
    warm_up = [replace(block, phase=Phase.WARMUP) for block in window([3.0], saved=(0,))]
    plain, saving = window([1.0] * 8), window([1.0] * 7 + [3.0], saved=(7,))
    assert without_checkpoints([[*warm_up, *plain], saving]) == [plain, saving]


def test_an_empty_window_leaves_all_as_they_are() -> None:
    saving = window([0.1] * 20 + [2.0], saved=(20,))
    assert without_checkpoints([[]]) == [[]] and without_checkpoints([saving, []]) == [saving, []]


def test_a_merged_block_has_the_checkpoints_of_its_parts() -> None:
    (whole,) = merge(window([0.1, 0.1], saved=(1,)), 2)
    assert whole.num_saves == 1
