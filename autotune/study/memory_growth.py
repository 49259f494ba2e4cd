"""Memory that a short window does not show: longer batches, and a host whose memory grows over an epoch. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from autotune.measure.block import Phase
from autotune.model.result import RankResult, TrialResult
from autotune.units import MIB, format_bytes

LEAST_GROWTH_BYTES = 8 * MIB
"""Growth over a window that buffers and heaps show without end; a trend shows in every window."""
NOTABLY_LONGER = 1.1
"""Bytes of the longest batch over the mean from which the batch is told."""


def growth_notes(finals: Sequence[TrialResult], host_cap_bytes: int | None) -> Iterator[str]:
    """Notes on the winner's memory beyond its windows.

    Args:
        finals: Results of the winner in the finals.
        host_cap_bytes: Most memory of the host; None without a cap.
    """
    factor, num_read = max(
        ((rank.longest_batch_factor or 0.0, rank.num_further_batches) for each in finals for rank in each.ranks),
        default=(0.0, 0),
    )
    if factor >= NOTABLY_LONGER:
        yield (
            f"The peak of memory includes steps on the longest of {num_read} further batches, with {factor:.1f} times "
            "the mean size. A still longer batch of your data needs more."
        )
    if host_cap_bytes is not None:
        yield from _on_host(finals, host_cap_bytes)


def _on_host(finals: Sequence[TrialResult], cap_bytes: int) -> Iterator[str]:
    """Tells when the host's memory would pass the cap, if the memory grew in every final."""
    grown = [_growth(each) for each in finals]
    if not grown or any(each is None for each in grown):
        return
    slopes = [each[0] for each in grown if each is not None]
    held, epoch = max(each[1] for each in grown if each), max(each[2] for each in grown if each)
    slope = median(slopes)
    at_end = held + slope * epoch
    if at_end <= cap_bytes:
        return
    until = max(0, math.floor((cap_bytes - held) / slope))
    yield (
        f"Host memory grows by {format_bytes(round(slope * 1000))} in 1,000 batches. At this pace the cap of "
        f"{format_bytes(cap_bytes)} is passed after {until:,} of the {epoch:,} batches of an epoch, and the epoch ends "
        f"at {format_bytes(round(at_end))}. A usual reason: workers copy each page of Python objects that they read, "
        "such as a list of paths in the dataset; an array or a tensor in place of the list stays shared."
    )


def _growth(result: TrialResult) -> tuple[float, int, int] | None:
    """Bytes a batch, held bytes, and batches of an epoch; None without a trend."""
    if not result.ranks or any(rank.host_growth_bytes is None or not _num_batches(rank) for rank in result.ranks):
        return None
    grown = sum(rank.host_growth_bytes or 0 for rank in result.ranks)
    epoch = max((rank.epoch_micro_batches or 0 for rank in result.ranks), default=0)
    if grown < LEAST_GROWTH_BYTES or not epoch:
        return None
    held = sum(rank.held_host_bytes or 0 for rank in result.ranks)
    return grown / max(map(_num_batches, result.ranks)), held, epoch


def _num_batches(rank: RankResult) -> int:
    """Micro-batches in the window."""
    return sum(block.num_micro_batches for block in rank.blocks if block.phase is Phase.WINDOW)
