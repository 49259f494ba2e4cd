"""Notes on memory beyond a short window: longer batches, and growth of host memory over an epoch. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from autotune.measure.block import Phase
from autotune.model.result import RankResult, TrialResult
from autotune.units import MIB, format_bytes

LEAST_GROWTH_BYTES = 8 * MIB
"""Growth of buffers and heaps over a window, seen without any trend; a trend shows in every window."""
NOTABLY_LONGER = 1.1
"""Least ratio of the longest batch to the mean, in bytes, for a note."""


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
    growths = [growth for growth in map(_growth, finals) if growth is not None]
    if not growths or len(growths) < len(finals):
        return
    pace = median(growth.bytes_per_batch for growth in growths)
    held_bytes = max(growth.held_bytes for growth in growths)
    num_batches = max(growth.epoch_batches for growth in growths)
    end_bytes = held_bytes + pace * num_batches
    if end_bytes <= cap_bytes:
        return
    until = max(0, math.floor((cap_bytes - held_bytes) / pace))
    yield (
        f"Host memory grows by {format_bytes(round(pace * 1000))} in 1,000 batches. At this pace the cap of "
        f"{format_bytes(cap_bytes)} is passed after {until:,} of the {num_batches:,} batches of an epoch, and the "
        f"epoch ends at {format_bytes(round(end_bytes))}. A usual reason: workers copy each page of Python objects "
        "that they read, such as a list of paths in the dataset; an array or a tensor in place of the list stays "
        "shared."
    )


class _Growth(NamedTuple):
    """The trend of the host's memory in one final."""

    bytes_per_batch: float
    held_bytes: int
    epoch_batches: int


def _growth(result: TrialResult) -> _Growth | None:
    """The trend over the window; None without a trend."""
    if not result.ranks or any(rank.host_growth_bytes is None or not _num_batches(rank) for rank in result.ranks):
        return None
    grown = sum(rank.host_growth_bytes or 0 for rank in result.ranks)
    epoch = max((rank.epoch_micro_batches or 0 for rank in result.ranks), default=0)
    if grown < LEAST_GROWTH_BYTES or not epoch:
        return None
    return _Growth(
        bytes_per_batch=grown / max(map(_num_batches, result.ranks)),
        held_bytes=sum(rank.held_host_bytes or 0 for rank in result.ranks),
        epoch_batches=epoch,
    )


def _num_batches(rank: RankResult) -> int:
    """Micro-batches in the window."""
    return sum(block.num_micro_batches for block in rank.blocks if block.phase is Phase.WINDOW)
