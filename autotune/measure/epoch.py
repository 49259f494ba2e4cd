"""The cost of an epoch's start, and the rate with the cost spread over the epoch.

A window contains no epoch's end: epochs end rarely, and one end more or less in a window of seconds would decide
everything. The cost of an end is measured once, apart, and spread over the samples of an epoch. Persistent workers save
it.
"""

from __future__ import annotations

from autotune.measure.block import Block

RESTART_CYCLES = 2
"""Batches of every worker observed after a restart: with the second batch the workers are in stride again."""

NEGLIGIBLE_RESTART_SHARE = 0.002
"""Share of an epoch's time below which a restart is not worth measuring: a tenth of the narrowest interval used in a
decision."""

NO_WAIT = 0.01
"""Share of the steady time spent waiting for data at which the loader's queues still count as full."""


def restart_micro_batches(
    num_workers: int, micro_batches_per_step: int, *, epoch_micro_batches: int | None = None
) -> int:
    """Micro-batches observed after a restart: two of every worker, rounded up to whole optimizer steps.

    At most an epoch, if an epoch is a whole number of steps. Without this limit 8 batches would be observed of an epoch
    of 2, at 14 s each.

    Args:
        num_workers: Workers of the loader.
        micro_batches_per_step: Micro-batches of an optimizer step.
        epoch_micro_batches: Micro-batches of one epoch; None for a loader without a length.
    """
    num = RESTART_CYCLES * max(num_workers, 1)
    if epoch_micro_batches and epoch_micro_batches % micro_batches_per_step == 0:
        num = min(num, epoch_micro_batches)
    return -(-num // micro_batches_per_step) * micro_batches_per_step


def is_worth_restarting(
    *,
    epoch_micro_batches: int | None,
    micro_step_s: float,
    first_batch_s: float,
    num_workers: int,
    num_queued: int,
    num_watched: int,
    data_wait_fraction: float,
    limit_s: float,
) -> bool:
    """True when ending the epoch on purpose, to measure the cost of a new one, is worth the time.

    Args:
        epoch_micro_batches: Micro-batches of one epoch; None for a loader without a length.
        micro_step_s: Steady time of one micro-batch.
        first_batch_s: Time from the request for the trial's first batch to its arrival. A restart costs about as much,
            because it starts the workers too.
        num_workers: Workers of the loader; without workers there is nothing to start.
        num_queued: Batches that the loader may hold ready or have begun; taken out before the restart.
        num_watched: Micro-batches observed after the restart, see `restart_micro_batches`.
        data_wait_fraction: Share of the steady time spent waiting for data, 0 to 1. A job that does not wait has full
            queues: most batches are ready, and each worker builds one.
        limit_s: Longest time allowed for the restart.
    """
    if epoch_micro_batches is None or num_workers == 0:
        return False
    if first_batch_s <= NEGLIGIBLE_RESTART_SHARE * epoch_micro_batches * micro_step_s:
        return False
    num_unready = num_queued if data_wait_fraction > NO_WAIT else min(num_workers, num_queued)
    return first_batch_s + (num_unready + num_watched) * micro_step_s <= limit_s


def restart_cost_s(after: Block, *, end_s: float, micro_step_s: float) -> float:
    """Seconds that the end of an epoch and the start of the next cost beyond the steady time of the same batches.

    Args:
        after: The micro-batches since the request for the new epoch.
        end_s: Time taken by the end of the old epoch, which waits for workers that are not persistent.
        micro_step_s: Steady time of one micro-batch.

    Returns:
        At least 0: a restart that seems to save time costs less than the noise.
    """
    return max(0.0, end_s + after.duration_s - after.num_micro_batches * micro_step_s)


def last_round_s(
    num_micro_batches: int, *, num_workers: int, data_wait_fraction: float, micro_step_s: float, spread_s: float = 0.0
) -> float:
    """Excess of an epoch's batches over the steady time, in seconds, apart from the start of the last worker.

    Workers that began together finish in rounds, and each round takes as long as one batch: 50 batches of 8 workers
    take 7 rounds, the time of 56. When the first workers began long before the last, the first workers finish the last
    round while the last worker is still busy with the previous one, so the batches take less time. A job that never
    waits for the loader loses nothing. In a long epoch the workers fall out of step, and the loss is negligible.

    Args:
        num_micro_batches: Micro-batches since the beginning of the epoch.
        num_workers: Workers of the loader.
        data_wait_fraction: Share of the steady time spent waiting for data, 0 to 1.
        micro_step_s: Steady time of one micro-batch.
        spread_s: Time between the start of the first worker and the start of the last.

    Returns:
        0 for full rounds. Otherwise at least minus the time of the last round's batches, and at most the time of the
        batches missing from the last round.
    """
    num_last = num_micro_batches % max(num_workers, 1)
    if num_last == 0:
        return 0.0
    by_last_round = (num_workers - num_last) * micro_step_s - spread_s * (1 - num_last / num_workers)
    return data_wait_fraction * max(by_last_round, -num_last * micro_step_s)


def saved_by_queues_s(
    num_queued: int, *, data_wait_fraction: float, micro_step_s: float, compute_micro_step_s: float
) -> float:
    """Seconds saved at an epoch's end, where the last batches wait in the queues and the workers have nothing to build.

    Where workers and training share the cores, a step beside busy workers takes longer than alone. A restart fills the
    queues, and pays for batches that make the epoch's last steps cheaper.

    Args:
        num_queued: Batches in full queues, at most those of an epoch.
        data_wait_fraction: Share of the steady time spent waiting for data, 0 to 1. A job that waits has empty queues.
        micro_step_s: Steady time of one micro-batch.
        compute_micro_step_s: Time of one micro-batch beside resting workers.
    """
    return num_queued * max(0.0, (1 - data_wait_fraction) * micro_step_s - compute_micro_step_s)


def estimated_restart_s(
    *, first_batch_s: float, data_wait_fraction: float, num_workers: int, micro_step_s: float
) -> float:
    """Cost of starting the workers anew, estimated from the time of the very first batch.

    A job that never waits for its loader loses all of the first batch's time. A job that always waits receives the
    batches of the remaining workers right after the first: as many batches as the workers build in the time of one.

    Args:
        first_batch_s: Time from the request for the first iteration to its first batch.
        data_wait_fraction: Share of the steady time spent waiting for data, 0 to 1.
        num_workers: Workers of the loader.
        micro_step_s: Steady time of one micro-batch.
    """
    return max(0.0, first_batch_s - data_wait_fraction * num_workers * micro_step_s)


def amortised_rate(steady_samples_per_second: float, *, restart_s: float, epoch_s: float) -> float:
    """Samples per second over whole epochs.

    Args:
        steady_samples_per_second: Rate within an epoch.
        restart_s: Cost of an epoch's start, at least 0.
        epoch_s: Steady time of an epoch's batches, above 0.

    Raises:
        ValueError: When a time is out of range.
    """
    if not (restart_s >= 0 and epoch_s > 0):
        raise ValueError(f"an epoch needs restart_s >= 0 and epoch_s > 0, not {restart_s!r} and {epoch_s!r}")
    return steady_samples_per_second * epoch_s / (epoch_s + restart_s)
