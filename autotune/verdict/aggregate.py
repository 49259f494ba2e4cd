"""From the blocks of all ranks to the throughput of the trial. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotune.measure.block import Block, Phase, data_wait_fraction, merge
from autotune.measure.build_rate import steady_factor
from autotune.measure.checkpoints import without_checkpoints
from autotune.measure.epoch import (
    NEGLIGIBLE_RESTART_SHARE,
    amortised_rate,
    estimated_restart_s,
    last_round_s,
    restart_cost_s,
    saved_by_queues_s,
)
from autotune.measure.interval import estimate_rate
from autotune.measure.window_stopping import LEAST_BLOCKS
from autotune.model.facts import ScriptFacts
from autotune.model.result import Measurement, RankResult, RankStatus

RACED_MARGIN = 0.02
"""Most excess of a true rate over the rate of the fastest step, by the clock's grain and a lucky step."""


def measurement_of(ranks: Sequence[RankResult], *, counts_skipped: bool = False) -> Measurement | None:
    """Throughput over all ranks: all samples over the slowest rank's time; None with too few blocks.

    The start of an epoch is spread over the epoch's samples. Blocks with a checkpoint do not count.

    Args:
        ranks: Reports of all ranks.
        counts_skipped: Whether samples of skipped optimizer steps count.
    """
    windows = without_checkpoints([rank.blocks for rank in ranks])
    if min(len(window) for window in windows) < LEAST_BLOCKS:
        return _bound(ranks)
    estimates = [estimate_rate(window) for window in windows]
    slowest = max(range(len(windows)), key=lambda i: _seconds_per_step(windows[i]))
    chosen = estimates[slowest]
    steady = _rate(windows, slowest, counts_skipped=counts_skipped)
    restart_s, epoch_s = _restart_s(ranks, windows), _epoch_s(ranks[slowest], windows[slowest])
    rate = steady
    if restart_s is not None and epoch_s is not None:
        rate = amortised_rate(steady, restart_s=restart_s, epoch_s=epoch_s)
    scale = rate / chosen.samples_per_second
    return Measurement(
        samples_per_second=chosen.samples_per_second * scale,
        low=chosen.interval.low * scale,
        high=chosen.interval.high * scale,
        is_converged=all(rank.is_converged for rank in ranks),
        is_nonstationary=any(estimate.nonstationary for estimate in estimates),
        is_primed=any(rank.is_primed for rank in ranks),
        num_blocks=min(len(window) for window in windows),
        window_s=sum(block.duration_s for block in windows[slowest]),
        data_wait_fraction=data_wait_fraction(windows[slowest]),
        compute_samples_per_second=_compute(ranks),
        restart_s=restart_s if epoch_s is not None else None,
        epoch_s=epoch_s,
    )


def device_peak_bytes(
    ranks: Sequence[RankResult], *, seen_bytes: int, outside_bytes: int, validation_bytes: int = 0
) -> int:
    """Largest memory of a trial on any of the devices, in bytes; a refused allocation counts as held.

    Args:
        ranks: The reports; a report of a refused allocation has the requested bytes as well.
        seen_bytes: Growth of the device's memory in use, read from outside ten times a second; short peaks are missed.
        outside_bytes: Memory of a process outside the caching allocator.
        validation_bytes: Memory of the script's validation in the probe; the trial does not come to the validation.
    """
    peaks = [seen_bytes, validation_bytes + outside_bytes if validation_bytes else 0]
    for rank in ranks:
        reserved = rank.peak_reserved_bytes or 0
        refused = rank.error if rank.error is not None and not rank.error.is_host_memory else None
        if refused is not None and refused.is_out_of_memory and refused.requested_bytes:
            reserved = max(reserved, (rank.reserved_bytes or 0) + refused.requested_bytes)
        peaks.append(reserved + outside_bytes if reserved else 0)
    return max(peaks)


def probed_facts(ranks: Sequence[RankResult]) -> ScriptFacts | None:
    """Facts from a probe: the first rank's, with the host memory of all ranks together."""
    known = [rank.facts for rank in ranks if rank.facts is not None]
    if not known:
        return None
    peaks = [facts.validation_host_bytes for facts in known if facts.validation_host_bytes is not None]
    return replace(
        known[0],
        validation_host_bytes=sum(peaks) if peaks else None,
        validation_host_growth_bytes=sum(facts.validation_host_growth_bytes or 0 for facts in known) if peaks else None,
    )


def _bound(ranks: Sequence[RankResult]) -> Measurement | None:
    """The upper bound of a trial stopped before the window: the fastest step on the cached batch.

    The slowest rank decides, because all ranks wait for each other.
    """
    if any(rank.status is not RankStatus.RACED_OUT for rank in ranks):
        return None
    compute = [[block for block in rank.blocks if block.phase is Phase.COMPUTE] for rank in ranks]
    if not all(compute):
        return None
    fastest = min(max(block.num_samples / block.busy_s for block in blocks) for blocks in compute) * len(ranks)
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


def _seconds_per_step(window: Sequence[Block]) -> float:
    return sum(block.duration_s for block in window) / sum(block.num_steps for block in window) / steady_factor(window)


def _rate(windows: Sequence[Sequence[Block]], slowest: int, *, counts_skipped: bool) -> float:
    """Samples per step over all ranks, over the slowest rank's seconds per step."""
    samples_of = _samples if counts_skipped else _trained_samples
    per_step = sum(samples_of(window) / sum(b.num_steps for b in window) for window in windows)
    return per_step / _seconds_per_step(windows[slowest])


def _samples(window: Sequence[Block]) -> float:
    return sum(block.num_samples for block in window)


def _trained_samples(window: Sequence[Block]) -> float:
    """Samples of completed optimizer steps; samples of skipped steps trained nothing."""
    return sum(block.num_samples * (1 - block.num_skipped_steps / block.num_steps) for block in window)


def _micro_step_s(window: Sequence[Block]) -> float:
    num_micro_batches = sum(block.num_micro_batches for block in window)
    return sum(block.duration_s for block in window) / num_micro_batches / steady_factor(window)


def _epoch_s(rank: RankResult, window: Sequence[Block]) -> float | None:
    """Time of an epoch's batches at the steady rate; None without a length, or with several epochs' ends in the run."""
    if rank.epoch_micro_batches is None or rank.epoch_micro_batches == 0 or rank.num_epoch_ends > 1:
        return None
    return rank.epoch_micro_batches * _micro_step_s(window)


def _starts_workers_unseen(rank: RankResult, window: Sequence[Block]) -> bool:
    """Whether every epoch begins with new workers, at more than a negligible cost."""
    epoch_s = _epoch_s(rank, window)
    if epoch_s is None or (rank.first_batch_s or 0.0) <= NEGLIGIBLE_RESTART_SHARE * epoch_s:
        return False
    has_new_workers = rank.is_loader_rebuilt or rank.observed.get("persistent_workers") is False
    return has_new_workers and _num_workers(rank) > 0


def _num_workers(rank: RankResult) -> int:
    """Workers of the training loader; 0 if unknown."""
    return max(0, int(rank.observed.get("num_workers") or 0))


def _last_round_s(rank: RankResult, window: Sequence[Block], num_micro_batches: int, spread_s: float = 0.0) -> float:
    return last_round_s(
        num_micro_batches,
        num_workers=_num_workers(rank),
        data_wait_fraction=data_wait_fraction(window),
        micro_step_s=_micro_step_s(window),
        spread_s=spread_s,
    )


def _seen_epoch_cost_s(rank: RankResult, window: Sequence[Block], after: Sequence[Block]) -> float:
    """Seconds of an epoch beyond the steady time, from a measured end and a measured start."""
    micro_step_s = _micro_step_s(window)
    whole = merge(after, len(after))[0]
    start_s = restart_cost_s(whole, end_s=0.0, micro_step_s=micro_step_s)
    # A worker's first batch takes as long as all workers take for a batch each.
    first_start_s = max(0.0, after[0].duration_s - _num_workers(rank) * micro_step_s)
    spread_s = max(0.0, start_s - first_start_s) if len(after) > 1 else 0.0
    start_s -= _last_round_s(rank, window, whole.num_micro_batches, spread_s)
    at_end_s = _last_round_s(rank, window, rank.epoch_micro_batches or 0, spread_s) - _saved_at_end_s(rank, window)
    return max(0.0, (rank.epoch_end_s or 0.0) + start_s + at_end_s)


def _saved_at_end_s(rank: RankResult, window: Sequence[Block]) -> float:
    """Seconds saved in the last steps of an epoch, beside resting workers; 0 without a compute-only rate."""
    rate, num_samples = rank.compute_samples_per_second, sum(block.num_samples for block in window)
    if not rate or not num_samples:
        return 0.0
    samples_per_batch = num_samples / sum(block.num_micro_batches for block in window)
    num_queued = _num_workers(rank) * int(rank.observed.get("prefetch_factor") or 0)
    return saved_by_queues_s(
        min(num_queued, rank.epoch_micro_batches or 0),
        data_wait_fraction=data_wait_fraction(window),
        micro_step_s=_micro_step_s(window),
        compute_micro_step_s=samples_per_batch / rate,
    )


def _restart_s(ranks: Sequence[RankResult], windows: Sequence[Sequence[Block]]) -> float | None:
    """Seconds for an epoch's start and end, on the rank with the largest cost; None if negligible on all ranks."""
    costs = []
    for rank, window in zip(ranks, windows, strict=True):
        epoch_s = _epoch_s(rank, window)
        at_end_s = _last_round_s(rank, window, rank.epoch_micro_batches or 0) if epoch_s is not None else 0.0
        after = [block for block in rank.blocks if block.phase is Phase.RESTART]
        if rank.epoch_end_s is not None and after:
            costs.append(_seen_epoch_cost_s(rank, window, after))
        elif _starts_workers_unseen(rank, window):
            costs.append(
                estimated_restart_s(
                    first_batch_s=rank.first_batch_s or 0.0,
                    data_wait_fraction=data_wait_fraction(window),
                    num_workers=_num_workers(rank),
                    micro_step_s=_micro_step_s(window),
                )
                + at_end_s
            )
        elif epoch_s is not None and at_end_s > NEGLIGIBLE_RESTART_SHARE * epoch_s:
            costs.append(at_end_s)
    return max(costs, default=None)


def _compute(ranks: Sequence[RankResult]) -> float | None:
    """Compute-only rate over all ranks, as fast as the slowest allows."""
    rates = [rank.compute_samples_per_second for rank in ranks]
    known = [rate for rate in rates if rate is not None]
    return min(known) * len(ranks) if len(known) == len(ranks) else None
