"""What the loader's workers built against what the script was given, and what that makes of the rate.

Workers that are let go together start in phase, but batches are delivered in order: the k-th round comes with the
slowest worker, whose sum of k build times lags behind the mean by the square root of k, until the fast ones have to
stop for the slow ones. So a window at the start of that delivers less than the loader will. What was built in it was
built at full speed, the fast workers not yet stopped: a little more than the loader will deliver, and much steadier.

Simulated for 80 batches of 8 workers, lognormal build times with a sigma of 0.1 and little compute: -2.2 % with a
standard deviation of 2.1 % by what was delivered, +0.3 % with 1.3 % by the mean that is taken here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotune.measure.block import Block, data_wait_fraction

UNBOUND_WAIT, BOUND_WAIT = 0.05, 0.2
"""Shares of the time that is waited for data. Up to the first one compute binds: what is built ahead fills a queue that
is soon full, and a twentieth may be what handing a batch over takes. From the second one on the loader does."""

BUILT_WEIGHT = 0.8
"""Of what was built, against what was delivered, where the loader binds: with it the errors of the two cancel best.
Over 2 to 16 workers and loads of 0.1 to 1.3, the mean absolute bias is 0.3 % for a sigma of at most 0.1 (0.7 % by what
was delivered) and 0.7 % for one of 0.3 (1.8 %)."""

LEAST_SHARE = 0.01
"""Of its samples that a block adds at least: a block needs some, even where its workers built nothing."""


def steady_factor(blocks: Sequence[Block]) -> float:
    """By how much the steady rate exceeds the one at which these blocks were delivered; 1 where nobody saw them built.

    Args:
        blocks: Consecutive blocks of one window, at least 1.

    Raises:
        ValueError: When there is no block.
    """
    num_built = sum(block.num_built or 0.0 for block in blocks)
    weight = _weight_of_built(blocks)
    return 1.0 + weight * (max(0.0, num_built) / sum(block.num_micro_batches for block in blocks) - 1.0)


def steady_blocks(blocks: Sequence[Block]) -> Sequence[Block]:
    """The blocks with the samples that each adds to the steady rate in place of those that were delivered in it.

    How well the steady rate is known follows from these. Deliveries come in rounds, and blocks of them differ by far
    more than blocks of what was built: intervals by what was delivered were twice as wide as the errors, and windows
    that were to reach a given width twice as long.

    Args:
        blocks: Consecutive blocks of one window, at least 1.

    Raises:
        ValueError: When there is no block.
    """
    weight = _weight_of_built(blocks)
    if weight == 0:
        return blocks
    return [replace(block, num_samples=block.num_samples * _share_of_steady(block, weight)) for block in blocks]


def binding_share(blocks: Sequence[Block]) -> float:
    """How far the loader binds, by the time that is waited for data: 0 where compute does, 1 where the loader does.

    Args:
        blocks: Consecutive blocks of one window, at least 1.

    Raises:
        ValueError: When there is no block.
    """
    share = (data_wait_fraction(blocks) - UNBOUND_WAIT) / (BOUND_WAIT - UNBOUND_WAIT)
    return min(1.0, max(0.0, share))


def _weight_of_built(blocks: Sequence[Block]) -> float:
    """Of what was built, against what was delivered; 0 where nobody saw it in all blocks."""
    binding = binding_share(blocks)
    return BUILT_WEIGHT * binding if all(block.num_built is not None for block in blocks) else 0.0


def _share_of_steady(block: Block, weight: float) -> float:
    ahead = (block.num_built or 0.0) / block.num_micro_batches - 1.0
    return max(1.0 + weight * ahead, LEAST_SHARE)
