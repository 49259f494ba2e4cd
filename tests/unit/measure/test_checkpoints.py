"""Blocks with a checkpoint, which no window's rate includes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.measure.block import Block, merge
from autotune.measure.checkpoints import without_checkpoints
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


def test_a_rank_that_has_not_waited_keeps_all_blocks() -> None:
    saving, other = window([0.1] * 20 + [0.2], saved=(20,)), window([0.1] * 20 + [0.15])
    assert without_checkpoints([saving, other]) == [saving[:20], other]


@pytest.mark.parametrize(
    "given",
    [window([0.1] * 8 + [2.0], saved=(8,)), window([0.1, 0.1, 0.1, 0.1, 2.0], saved=(4,)), window([0.1], saved=(0,))],
    ids=["too-often", "too-few-blocks", "one-block"],
)
def test_a_script_that_saves_all_the_time_pays_for_that(given: list[Block]) -> None:
    assert without_checkpoints([given]) == [given]


def test_an_empty_window_leaves_all_as_they_are() -> None:
    saving = window([0.1] * 20 + [2.0], saved=(20,))
    assert without_checkpoints([[]]) == [[]] and without_checkpoints([saving, []]) == [saving, []]


def test_a_merged_block_has_the_checkpoints_of_its_parts() -> None:
    (whole,) = merge(window([0.1, 0.1], saved=(1,)), 2)
    assert whole.num_saves == 1
