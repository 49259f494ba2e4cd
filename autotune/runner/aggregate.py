"""From the blocks of all ranks to the throughput of the trial. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.measure.block import Block, Phase
from autotune.measure.interval import estimate_rate
from autotune.model.result import Measurement, RankResult, RankStatus

MIN_BLOCKS = 4
"""Fewer blocks give no interval worth the name."""
RACED_MARGIN = 0.02
"""A rate known only from its fastest step may be exceeded by this much, by the clock's grain and one lucky step."""


def measurement_of(ranks: Sequence[RankResult]) -> Measurement | None:
    """Throughput over all ranks: all samples over the slowest rank's time; None when there are too few blocks."""
    windows = [_window(rank) for rank in ranks]
    if min(len(window) for window in windows) < MIN_BLOCKS:
        return _bound(ranks)
    estimates = [estimate_rate(window) for window in windows]
    slowest = max(range(len(windows)), key=lambda i: _seconds_per_step(windows[i]))
    scale = _rate(windows, slowest) / estimates[slowest].samples_per_second
    chosen = estimates[slowest]
    return Measurement(
        samples_per_second=chosen.samples_per_second * scale,
        low=chosen.interval.low * scale,
        high=chosen.interval.high * scale,
        is_converged=all(rank.is_converged for rank in ranks),
        is_nonstationary=any(estimate.nonstationary for estimate in estimates),
        is_primed=any(rank.is_primed for rank in ranks),
        num_blocks=min(len(window) for window in windows),
        window_s=sum(block.duration_s for block in windows[slowest]),
        data_wait_fraction=min(1.0, _wait_s(windows[slowest]) / sum(b.duration_s for b in windows[slowest])),
        compute_samples_per_second=_compute(ranks),
    )


def _bound(ranks: Sequence[RankResult]) -> Measurement | None:
    """The upper bound of a trial that was stopped before its window: its fastest step on the cached batch."""
    if any(rank.status is not RankStatus.RACED_OUT for rank in ranks):
        return None
    compute = [block for rank in ranks for block in rank.blocks if block.phase is Phase.COMPUTE]
    if not compute:
        return None
    fastest = max(block.num_samples / max(block.duration_s - block.data_wait_s, 1e-9) for block in compute)
    mean = _compute(ranks) or fastest
    return Measurement(
        samples_per_second=fastest,
        low=min(mean, fastest) * (1 - RACED_MARGIN),
        high=fastest * (1 + RACED_MARGIN),
        is_converged=False,
        is_nonstationary=False,
        is_primed=False,
        num_blocks=0,
        window_s=0.0,
        data_wait_fraction=0.0,
        compute_samples_per_second=_compute(ranks),
    )


def _window(rank: RankResult) -> list[Block]:
    return [block for block in rank.blocks if block.phase is Phase.WINDOW]


def _seconds_per_step(window: Sequence[Block]) -> float:
    return sum(block.duration_s for block in window) / sum(block.num_steps for block in window)


def _rate(windows: Sequence[Sequence[Block]], slowest: int) -> float:
    """Samples per step over all ranks, over the slowest rank's seconds per step."""
    per_step = sum(sum(b.num_samples for b in window) / sum(b.num_steps for b in window) for window in windows)
    return per_step / _seconds_per_step(windows[slowest])


def _wait_s(window: Sequence[Block]) -> float:
    return sum(block.data_wait_s for block in window)


def _compute(ranks: Sequence[RankResult]) -> float | None:
    """Compute-only rate over all ranks, as fast as the slowest allows."""
    rates = [rank.compute_samples_per_second for rank in ranks]
    known = [rate for rate in rates if rate is not None]
    return min(known) * len(ranks) if len(known) == len(ranks) else None
