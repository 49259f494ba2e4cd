"""The steady rate of a loader-bound job, from the batches built by the workers, and the batches delivered.

Workers start in phase when the gate opens, but batches are delivered in order: round k arrives with the slowest worker.
Its sum of k build times lags behind the mean by about the square root of k, until the fast workers have to stop for the
slow ones. A window during that time therefore delivers less than the steady loader. The batches built in the window
were built at full speed, before the fast workers had to stop: slightly more than the steady delivery, but steadier.

Simulated for 80 batches of 8 workers, lognormal build times with a sigma of 0.1 and little compute: the delivered
batches are wrong by -2.2 % with a standard deviation of 2.1 %, the weighted mean used here by +0.3 % with 1.3 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotune.measure.block import Block, data_wait_fraction

UNBOUND_WAIT, BOUND_WAIT = 0.05, 0.2
"""Shares of time spent waiting for data. Up to the first, compute binds: workers only fill a queue that is soon full,
and a twentieth may be the cost of handing over a batch. From the second on, the loader binds."""

BUILT_WEIGHT = 0.8
"""Weight of built against delivered batches for a loader-bound job: the two errors then cancel best. Over 2 to 16
workers and loads of 0.1 to 1.3, the mean absolute bias is 0.3 % for a sigma of at most 0.1 (0.7 % by delivered batches)
and 0.7 % for a sigma of 0.3 (1.8 %)."""

LEAST_SHARE = 0.01
"""Least share of its samples left to a block by `steady_blocks`: a block without samples is impossible."""


def steady_factor(blocks: Sequence[Block]) -> float:
    """Steady rate over delivered rate; 1 without observed workers.

    Args:
        blocks: Consecutive blocks of one window, at least 1.

    Raises:
        ValueError: When there is no block.
    """
    num_built = sum(block.num_built or 0.0 for block in blocks)
    weight = _weight_of_built(blocks)
    return 1.0 + weight * (max(0.0, num_built) / sum(block.num_micro_batches for block in blocks) - 1.0)


def steady_blocks(blocks: Sequence[Block]) -> Sequence[Block]:
    """The blocks with the samples that each adds to the steady rate, instead of the samples delivered in it.

    The error of the steady rate follows from these blocks. Deliveries come in rounds, so delivered samples vary far
    more between blocks than built samples. Intervals by delivered samples were twice as wide as the errors, and windows
    took twice as long to reach a given width.

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
    """How far the loader binds, by the share of time spent waiting for data: 0 if compute binds, 1 if the loader does.

    Args:
        blocks: Consecutive blocks of one window, at least 1.

    Raises:
        ValueError: When there is no block.
    """
    share = (data_wait_fraction(blocks) - UNBOUND_WAIT) / (BOUND_WAIT - UNBOUND_WAIT)
    return min(1.0, max(0.0, share))


def _weight_of_built(blocks: Sequence[Block]) -> float:
    """Weight of built against delivered batches; 0 unless the workers were observed in every block."""
    binding = binding_share(blocks)
    return BUILT_WEIGHT * binding if all(block.num_built is not None for block in blocks) else 0.0


def _share_of_steady(block: Block, weight: float) -> float:
    ahead = (block.num_built or 0.0) / block.num_micro_batches - 1.0
    return max(1.0 + weight * ahead, LEAST_SHARE)
