"""Decides from blocks and time alone when a phase of a trial is over."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.measure.block import Block, Phase, data_wait_fraction
from autotune.measure.epoch import is_worth_restarting
from autotune.measure.interval import estimate_rate
from autotune.measure.window_stopping import EARLY_FACTOR, LEAST_BLOCKS, may_end, warmed_up
from autotune.trial.meter.build_log import Built
from autotune.trial.meter.measuring_plan import Plan

MIN_WARMUP_STEPS = 3
MAX_WARMUP_S = 10.0
"""Longest warm-up; a job that has not settled by then is unsteady by nature."""
STEADY_WARMUP_S = 1.5
STEADY_WARMUP_STEPS = 10
"""Steps and seconds after which nothing is left to warm, and only the noise of a shared host hides the steadiness."""
LONG_STEP_S, LONG_STEPS_ALIKE = 1.0, 0.05
"""Step, in seconds, from which three steps that differ by no more than this share end the warm-up: a long step is the
mean of much work, and three more of nanoGPT's 1.4 s made every run 4 s longer. On a shared host one of three differed
by 3.4 %."""
LAST_WARMUP_STEPS = 6
"""Last steps of the warm-up, for the test of steadiness and the time of a step."""
COMPUTE_BLOCK_S = 0.02
"""Shortest block of the compute-only rate; the meter's work at the end of a block would slow down small steps."""
MIN_COMPUTE_BLOCKS = 5
MIN_COMPUTE_S = 0.4
MAX_COMPUTE_S = 3.0
DRAIN_QUEUES = 2
"""Number of queue lengths to drain before the clock starts when there is no gate; the result is marked `primed`."""
MAX_FILL_S = 10.0
"""Longest ramp in seconds for the sake of page-locked memory: batches of ever new sizes lock new pages for ever."""
WARM_UP_SHARE, EARLY_SHARE = 0.125, 0.25
"""Shares of the steps of a script that ends by itself, for the warm-up and for all phases before the window."""
NO_WAIT = 0.01
"""Largest share of a block spent waiting for data, for a script that does not wait for its workers."""
LEAST_QUEUED = 4
"""Assumed queue length of a script that reads the loader ahead by itself."""


def is_warm(blocks: Sequence[Block], elapsed_s: float, plan: Plan, num_updates: int) -> bool:
    """Whether the warm-up is over; the blocks of a warm-up are single steps."""
    if len(blocks) < MIN_WARMUP_STEPS:
        return False
    is_long = elapsed_s >= STEADY_WARMUP_S and len(blocks) >= STEADY_WARMUP_STEPS
    if is_long or elapsed_s >= MAX_WARMUP_S or _has_taken(WARM_UP_SHARE, plan, num_updates):
        return True
    last = [block.busy_s for block in blocks[-MIN_WARMUP_STEPS:]]
    if min(last) >= LONG_STEP_S and max(last) <= (1 + LONG_STEPS_ALIKE) * min(last):
        return True
    return warmed_up([block.busy_s for block in blocks[-LAST_WARMUP_STEPS:]])


def is_worth_a_wait(
    phase: Phase, known: Sequence[Block], num_unfinished: int, latest_block_s: float, plan: Plan
) -> bool:
    """Whether to wait for the device at the end of a long block, because the phase is likely to end there.

    The host runs ahead of the device, and does not know the latest block yet. A further block decides as well, and
    costs seconds. In the window a wait must not be in vain: the next block would contain all work of the host that the
    device's work usually hides.

    Args:
        phase: The running phase.
        known: Blocks of the phase finished by the device.
        num_unfinished: Further blocks of the phase ended by the host.
        latest_block_s: Seconds of the latest block finished by the device.
        plan: Facts and limits of the trial.
    """
    num_blocks, rule = len(known) + num_unfinished, plan.rule
    if phase is Phase.WARMUP:
        return num_blocks >= MIN_WARMUP_STEPS
    if phase is not Phase.WINDOW or len(known) < LEAST_BLOCKS - 1:
        return phase is Phase.RAMP
    elapsed_s = sum(block.duration_s for block in known) + num_unfinished * latest_block_s
    factor = EARLY_FACTOR if num_blocks < rule.min_blocks else 1.0
    is_narrow = estimate_rate(known).half_width_ratio <= factor * rule.half_width_ratio
    is_over = elapsed_s >= rule.max_window_s or (is_narrow and elapsed_s >= rule.min_window_s)
    return is_over and may_end(num_blocks, elapsed_s, rule)


def has_ceiling(num_blocks: int, elapsed_s: float, plan: Plan, num_updates: int) -> bool:
    """Whether the compute-only rate is known."""
    is_enough = num_blocks >= MIN_COMPUTE_BLOCKS and elapsed_s >= MIN_COMPUTE_S
    return is_enough or elapsed_s >= MAX_COMPUTE_S or _has_taken(EARLY_SHARE, plan, num_updates)


def ceiling(blocks: Sequence[Block]) -> float | None:
    """Samples per second on the cached batch, the rate of training without a loader; None without blocks."""
    if not blocks:
        return None
    return sum(block.num_samples for block in blocks) / sum(block.busy_s for block in blocks)


def is_compute_too_slow(blocks: Sequence[Block], plan: Plan) -> bool:
    """Whether even the fastest block on the cached batch loses the race; a loader can only slow the trial down."""
    to_beat = plan.incumbent_samples_per_second
    if to_beat is None or not blocks:
        return False
    return max(block.num_samples / block.busy_s for block in blocks) < to_beat * plan.rule.race_margin


def is_steady(
    blocks: Sequence[Block], plan: Plan, num_updates: int, *, is_queue_empty: bool, num_unchanged: int
) -> bool:
    """Whether the ramp is over: every worker has begun, or a full queue was drained.

    The ramp also lasts at least one block of the window. After a shorter ramp a single slow step could make the
    window's blocks far too short, and the meter's work at the ends of blocks would slow every step. The ramp also
    lasts until the pool of page-locked memory has not grown for a batch of each worker.

    Args:
        blocks: Blocks of the ramp.
        plan: Facts and limits of the trial.
        num_updates: Optimizer steps so far.
        is_queue_empty: Whether no batch was ready when the ramp began.
        num_unchanged: Micro-batches since the pool of page-locked memory grew.
    """
    num_micro_batches = sum(block.num_micro_batches for block in blocks)
    if is_queue_empty:
        is_through = num_micro_batches >= max(1, plan.num_workers)
    else:
        is_through = num_micro_batches >= DRAIN_QUEUES * max(plan.num_queued, LEAST_QUEUED) + plan.num_workers
    if not is_through:
        return False
    elapsed_s = sum(block.duration_s for block in blocks)
    is_settled = num_unchanged >= plan.num_workers or elapsed_s >= MAX_FILL_S
    return (is_settled and elapsed_s >= plan.rule.min_block_s) or _has_taken(EARLY_SHARE, plan, num_updates)


def needs_no_rounds(ramp: Sequence[Block], built: Built | None, plan: Plan) -> bool:
    """Whether the window's blocks need not be whole rounds of the workers, because none of their bursts is to be seen.

    This holds when the workers have a whole round of batches ready after a ramp that began with none: they build far
    faster than the script trains. Only rounds too long for the window are given up. accelerate's example took 16 steps
    of 8 to 30 s in each window, four rounds of four workers, and 45 minutes held six trials.

    Args:
        ramp: Blocks of the ramp, which began without a ready batch.
        built: What the workers have built since; None without observed workers.
        plan: Facts and limits of the trial.
    """
    if not ramp or built is None:
        return False
    is_long = LEAST_BLOCKS * plan.num_workers * micro_step_s(ramp) > plan.rule.max_window_s
    num_taken = sum(block.num_micro_batches for block in ramp)
    waits = ramp[-1].data_wait_s > NO_WAIT * ramp[-1].duration_s
    return is_long and not waits and built.num >= num_taken + plan.num_workers


def is_restart_of_use(window: Sequence[Block], plan: Plan, num_watched: int) -> bool:
    """Whether a restart of the epoch, with so many micro-batches observed, is worth measuring after the window."""
    if not window:
        return False
    return is_worth_restarting(
        epoch_micro_batches=plan.epoch_micro_batches,
        micro_step_s=micro_step_s(window),
        first_batch_s=plan.first_batch_s,
        num_workers=plan.num_workers,
        num_queued=plan.num_queued,
        num_watched=num_watched,
        data_wait_fraction=data_wait_fraction(window),
        limit_s=plan.rule.max_window_s,
    )


def micro_step_s(blocks: Sequence[Block]) -> float:
    """Mean seconds of a micro-step, with the wait for the batch."""
    return sum(block.duration_s for block in blocks) / sum(block.num_micro_batches for block in blocks)


def busy_micro_step_s(blocks: Sequence[Block]) -> float:
    """Mean seconds of a micro-step, without the wait for the batch."""
    return sum(block.busy_s for block in blocks) / sum(block.num_micro_batches for block in blocks)


def _has_taken(share: float, plan: Plan, num_updates: int) -> bool:
    """Whether the script has made `share` of its steps; False when the script outlasts the trial."""
    return plan.script_steps is not None and num_updates >= share * plan.script_steps
