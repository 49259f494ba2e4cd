"""Leaves the blocks with a checkpoint out of a window.

GPT-2 by the Trainer of transformers, two ranks: every 500th step saves for 1.6 to 2.0 s, and a window lasts 4 s. One of
three rounds of the finals held a checkpoint for the tuned settings, one for the script's own. The claim was
3.1x [1.6, 8.4]; without the two blocks the rounds are 3.2x to 3.4x. A real run pays for a checkpoint once in a minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from autotune.measure.block import Block, Phase
from autotune.measure.window_stopping import LEAST_BLOCKS

MOST_SHARE = 0.1
"""Largest share of a window's blocks to leave out: saving more often than that is a part of the script's rate."""
WAITED_RATIO = 2.0
"""Least duration, in medians of the window, of a block of another rank that has waited for the rank that saves."""


def without_checkpoints(ranks: Sequence[Sequence[Block]]) -> list[list[Block]]:
    """The windows of all ranks without the blocks in which the script saved.

    Usually one rank saves, and the others wait for its gradients. Each other rank loses as many of its longest blocks,
    if these took clearly longer than usual. The only save of a measurement, its warm-up included, is left out of few
    blocks, too.

    Args:
        ranks: Blocks of all phases, by rank.

    Returns:
        The whole windows when nothing was saved, when saves are too frequent, or when too few blocks would be left.
    """
    windows = [[block for block in blocks if block.phase is Phase.WINDOW] for blocks in ranks]
    num = max(map(_num_saving, windows), default=0)
    if num == 0 or not all(windows):
        return windows
    is_only = num == 1 and sum(map(_num_saving, ranks)) == sum(map(_num_saving, windows))
    is_rare = is_only or all(num <= MOST_SHARE * len(window) for window in windows)
    kept = [_without(window, num) for window in windows]
    return kept if is_rare and all(len(window) >= LEAST_BLOCKS for window in kept) else windows


def _num_saving(blocks: Sequence[Block]) -> int:
    return sum(block.num_saves > 0 for block in blocks)


def _without(window: list[Block], num: int) -> list[Block]:
    """The window without the blocks that saved or waited for a rank that saves, at most `num` blocks."""
    usual_s = median(block.duration_s for block in window)
    others = [block for block in window if not block.num_saves and block.duration_s >= WAITED_RATIO * usual_s]
    num_waited = num - _num_saving(window)
    waited = {id(block) for block in sorted(others, key=lambda block: -block.duration_s)[:num_waited]}
    return [block for block in window if not block.num_saves and id(block) not in waited]
