"""What a window cannot know of waits that are rare: where loader and step are nearly in balance.

A queue that is hardly ever empty makes the step wait now and then. A window sees few of these waits, or by luck fewer
than there are, and then takes both their share of the time and its error for too small at once: simulated 95 %
intervals covered the truth in 65 to 90 % of the windows. So a few waits more are allowed for than were seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.measure.block import Block
from autotune.measure.building import binding_share

MISSED_WAITS = 4.0
"""Waits that may have been missed, of the size of those that were seen: about the square of the normal distribution's
95 % quantile, which the score interval of a count adds to it."""


def rare_wait_error(blocks: Sequence[Block]) -> float:
    """Standard error of the rate, relative to it, that waits cause which this window may have missed.

    0 where every block waits for the same share of its time, or none does: what comes in every block is not rare, and
    of waits of which none was seen nothing is known. It fades out where the loader binds and waits are the rule.

    Args:
        blocks: Consecutive blocks of one phase, at least 1.

    Raises:
        ValueError: When there is no block.
    """
    binding = binding_share(blocks)
    usual = min(block.data_wait_s / block.duration_s for block in blocks)
    waits_s = [max(0.0, block.data_wait_s - usual * block.duration_s) for block in blocks]
    waited_s = sum(waits_s)
    if waited_s <= 0:
        return 0.0
    typical_s = sum(wait_s * wait_s for wait_s in waits_s) / waited_s  # of the wait that a waiting moment falls into
    return math.sqrt(MISSED_WAITS * (1.0 - binding)) * typical_s / sum(block.duration_s for block in blocks)
