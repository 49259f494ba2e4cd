"""Leaves the blocks with a checkpoint out of a window.

GPT-2 by the Trainer of transformers, two ranks: every 500th step saves for 1.6 to 2.0 s, and a window lasts 4 s. Of
three rounds of the finals, the first held a checkpoint for the tuned settings, and the last for the script's own
settings. The claim was 3.1x [1.6, 8.4]. Without the two blocks the rounds are 3.2x to 3.4x. A real run pays for a
checkpoint about once in a minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from autotune.measure.block import Block, Phase
from autotune.measure.window_stopping import LEAST_BLOCKS

MOST_SHARE = 0.1
"""Largest share of a window's blocks to leave out. More frequent saves are a part of the script's rate."""
WAITED_RATIO = 2.0
"""Least duration of a block in which a rank has waited for the saving rank, in medians of the window."""


def without_checkpoints(ranks: Sequence[Sequence[Block]]) -> list[list[Block]]:
    """The windows of all ranks without the blocks in which the script saved.

    Usually one rank saves, and all further ranks wait for the gradients of the saving rank, after a short save of
    their own, if any. A waiting rank loses its longest blocks: as many as another rank has long saves, less its own
    long saves, and only blocks of `WAITED_RATIO` medians or more. A single save in a whole measurement, warm-up
    included, is left out of a window with few blocks, too.

    Args:
        ranks: Blocks of all phases, by rank.

    Returns:
        The whole windows without a save, with too frequent saves, or with too few blocks beside the saves.
    """
    windows = [[block for block in blocks if block.phase is Phase.WINDOW] for blocks in ranks]
    num = max(map(_num_saving, windows), default=0)
    if num == 0 or not all(windows):
        return windows
    is_only = num == 1 and sum(map(_num_saving, ranks)) == sum(map(_num_saving, windows))
    is_rare = is_only or all(num <= MOST_SHARE * len(window) for window in windows)
    num_long = [_num_long(window) for window in windows]
    waits = [max([*num_long[:rank], *num_long[rank + 1 :]], default=0) - own for rank, own in enumerate(num_long)]
    kept = [_without(window, max(0, num_waits)) for window, num_waits in zip(windows, waits, strict=True)]
    return kept if is_rare and all(len(window) >= LEAST_BLOCKS for window in kept) else windows


def _num_saving(blocks: Sequence[Block]) -> int:
    return sum(block.num_saves > 0 for block in blocks)


def _num_long(window: Sequence[Block]) -> int:
    """Number of blocks with a save as long as a wait."""
    usual_s = median(block.duration_s for block in window)
    return sum(block.num_saves > 0 and block.duration_s >= WAITED_RATIO * usual_s for block in window)


def _without(window: list[Block], num_waits: int) -> list[Block]:
    """The window without the blocks of its saves, and without at most `num_waits` long blocks."""
    usual_s = median(block.duration_s for block in window)
    others = [block for block in window if not block.num_saves and block.duration_s >= WAITED_RATIO * usual_s]
    waited = {id(block) for block in sorted(others, key=lambda block: -block.duration_s)[:num_waits]}
    return [block for block in window if not block.num_saves and id(block) not in waited]
