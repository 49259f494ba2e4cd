"""What the start of an epoch costs, and what that makes of a steady rate.

A window holds no epoch's end: endings are rare, and one more or less of them in a window of seconds would decide
everything. What an end costs is measured once, apart, and spread over the samples of an epoch. That is what persistent
workers are worth.
"""

from __future__ import annotations

from autotune.measure.block import Block

RESTART_CYCLES = 2
"""Batches of every worker that are seen after a restart: with the second one the workers are in stride again."""

NEGLIGIBLE_RESTART_SHARE = 0.002
"""Of an epoch's time. A restart that takes less is not worth the time to measure it: it is a tenth of the narrowest
interval that anything is decided by."""


def restart_micro_batches(num_workers: int, micro_batches_per_step: int) -> int:
    """Micro-batches that are watched after a restart: two of every worker, and whole optimizer steps."""
    num = RESTART_CYCLES * max(num_workers, 1)
    return -(-num // micro_batches_per_step) * micro_batches_per_step


def is_worth_restarting(
    *,
    epoch_micro_batches: int | None,
    micro_step_s: float,
    first_batch_s: float,
    num_workers: int,
    num_queued: int,
    limit_s: float,
) -> bool:
    """Whether to end the epoch on purpose and begin a new one, to see what that costs.

    Args:
        epoch_micro_batches: Of one epoch; None where the loader has no length.
        micro_step_s: Steady time of one micro-batch.
        first_batch_s: What the first batch of the trial took from asking for it: about as much as a restart, since
            then the workers were started as well.
        num_workers: Of the loader; without any there is nothing to start.
        num_queued: Batches that the loader may hold ready; they are taken out before the restart.
        limit_s: Longest time that it may take.
    """
    if epoch_micro_batches is None or num_workers == 0:
        return False
    if first_batch_s <= NEGLIGIBLE_RESTART_SHARE * epoch_micro_batches * micro_step_s:
        return False
    num_watched = restart_micro_batches(num_workers, 1)
    return first_batch_s + (num_queued + num_watched) * micro_step_s <= limit_s


def restart_cost_s(after: Block, *, end_s: float, micro_step_s: float) -> float:
    """Seconds that the end of an epoch and the start of the next one cost beyond the steady time of the same batches.

    Args:
        after: The micro-batches from asking for the new epoch on.
        end_s: What the end of the old epoch took: workers that are not persistent are waited for.
        micro_step_s: Steady time of one micro-batch.

    Returns:
        At least 0: a restart that seems to save time is one that costs less than the noise.
    """
    return max(0.0, end_s + after.duration_s - after.num_micro_batches * micro_step_s)


def last_round_s(
    num_micro_batches: int, *, num_workers: int, data_wait_fraction: float, micro_step_s: float, spread_s: float = 0.0
) -> float:
    """Seconds that so many batches take beyond their steady time, and beyond the start of the last worker.

    Each round of workers that began together takes as long as one batch, so 50 batches of 8 workers take 7 rounds, the
    time of 56. Where the first workers began long before the last one, theirs is the last round, and they are done with
    it before the last worker is with the round before: then it takes less. A job that does not wait for its loader
    loses nothing by either. In a long epoch the workers fall out of step, and all this is too small a share of it to
    matter.

    Args:
        num_micro_batches: From the beginning of the epoch on.
        num_workers: Of the loader.
        data_wait_fraction: Share of the steady time that is waited for data, 0 to 1.
        micro_step_s: Steady time of one micro-batch.
        spread_s: Between the start of the first worker and that of the last one.

    Returns:
        0 for full rounds; otherwise between minus the time of the last round's batches and plus that of those that it
        lacks.
    """
    num_last = num_micro_batches % max(num_workers, 1)
    if num_last == 0:
        return 0.0
    by_last_round = (num_workers - num_last) * micro_step_s - spread_s * (1 - num_last / num_workers)
    return data_wait_fraction * max(by_last_round, -num_last * micro_step_s)


def estimated_restart_s(
    *, first_batch_s: float, data_wait_fraction: float, num_workers: int, micro_step_s: float
) -> float:
    """What starting workers anew costs, from how long the first batch of all took, where nothing better is known.

    A job that never waits for its loader loses all of that time. One that always does gets the batches of the other
    workers at once after it, as many as they would have built in the time that one batch takes.

    Args:
        first_batch_s: From asking for the first iteration to its first batch.
        data_wait_fraction: Share of the steady time that is waited for data, 0 to 1.
        num_workers: Of the loader.
        micro_step_s: Steady time of one micro-batch.
    """
    return max(0.0, first_batch_s - data_wait_fraction * num_workers * micro_step_s)


def amortised_rate(steady_samples_per_second: float, *, restart_s: float, epoch_s: float) -> float:
    """Samples per second over whole epochs.

    Args:
        steady_samples_per_second: Within an epoch.
        restart_s: Cost of an epoch's start, at least 0.
        epoch_s: Steady time of an epoch's batches, above 0.

    Raises:
        ValueError: When a time is out of range.
    """
    if not (restart_s >= 0 and epoch_s > 0):
        raise ValueError(f"an epoch needs restart_s >= 0 and epoch_s > 0, not {restart_s!r} and {epoch_s!r}")
    return steady_samples_per_second * epoch_s / (epoch_s + restart_s)
