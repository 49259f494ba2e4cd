"""When a measuring window may end, how long its blocks are, and when the warm-up is over."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from autotune.measure.block import Block
from autotune.measure.interval import estimate_rate

SCREENING_HALF_WIDTH_RATIO = 0.05
"""Half-width that ends a screening window, relative to the rate. Screening only ranks, and the finals measure the best
few again: 5 % takes a few seconds, 2 % takes many."""

FINALS_HALF_WIDTH_RATIO = 0.02
"""Half-width that ends a window of the finals, relative to the rate: the finals' figures are published."""

FIRST_LOOK_NUM_BLOCKS = 8
"""Blocks before the first look: with fewer, intervals are wide, and cover less than they claim."""

RACE_CONFIDENCE = 0.98
"""Two-sided level of a race. The upper end is the one-sided 99 % bound: about 1 look in 100 ends a race wrongly."""

LONGEST_COMMON_CYCLE = 64
"""Longest cycle of a block, in micro-batches. With a longer cycle, blocks would take longer than the trial."""

LEAST_BLOCKS = 4
"""Fewest blocks of a measurement: fewer give no useful interval."""
LONG_BLOCK_S = 1.0
"""Mean block, in seconds, from which the first look comes after the fewest blocks: a long block is the mean of much
work. Eight steps of nanoGPT took 11 s, and their times differed by 0.3 %."""
EARLY_FACTOR = 0.5
"""Allowed half-width before the usual first look, as a share of the usual. Blocks that get faster by 2.5 % each, from
1.4 to 1.2 s, ended a window with an error of 10 % at the full half-width, and of 6 % at half of it (simulated)."""
LEAST_BLOCKS_OF_RACE = 2
"""Fewest blocks of a window in which no block comes near the best rate: a slow trial shall not take longer to lose."""

_PATIENCE = 4.0
"""Multiple of the time limit allowed to a window with fewer than the least blocks, as of a script with long pauses."""
_MOST_PATIENCE = 2.0
"""Multiple of the patience in which the least blocks must be expected for a window to go on. A window of three blocks
may go on for half as long again."""


class StopReason(StrEnum):
    """Why a window ended."""

    CONVERGED = "converged"
    """The interval is as narrow as the rule requires."""
    RACED_OUT = "raced_out"
    """Slower beyond doubt than the best feasible rate so far."""
    TIME_LIMIT = "time_limit"
    """The time is up, however wide the interval is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowRule:
    """The conditions for ending a window; impossible values raise `ValueError`."""

    half_width_ratio: float
    """Largest half-width of the 95 % interval of a converged window, as a share of the rate; above 0, below 1."""
    min_blocks: int = FIRST_LOOK_NUM_BLOCKS
    """Blocks at the first look, at least 2; with long blocks, at most LEAST_BLOCKS."""
    min_window_s: float = 1.0
    """Least measured time before a look: clocks and caches settle over a second, not over a few blocks."""
    max_window_s: float = 8.0
    """Time limit."""
    min_block_s: float = 0.05
    """Shortest block (see `block_size`): 50 ms keep the meter's own cost and the clock's grain out of the figure."""
    race_margin: float = 0.97
    """Share of the best rate below which a trial is raced out; above 0, at most 1. A trial 3 % slower may still win."""

    def __post_init__(self) -> None:
        if not 0 < self.half_width_ratio < 1:
            raise ValueError(f"half_width_ratio must be above 0 and below 1, not {self.half_width_ratio!r}")
        if self.min_blocks < 2:
            raise ValueError(f"min_blocks must be at least 2, not {self.min_blocks!r}")
        if not (0 <= self.min_window_s <= self.max_window_s < math.inf and self.max_window_s > 0):
            raise ValueError(
                f"a window needs 0 <= min_window_s <= max_window_s, not {self.min_window_s!r} and {self.max_window_s!r}"
            )
        if not 0 < self.min_block_s < math.inf:
            raise ValueError(f"min_block_s must be finite and positive, not {self.min_block_s!r}")
        if not 0 < self.race_margin <= 1:
            raise ValueError(f"race_margin must be above 0 and at most 1, not {self.race_margin!r}")


def is_look(num_blocks: int, first_look: int = FIRST_LOOK_NUM_BLOCKS) -> bool:
    """True when the interval is to be examined after so many blocks: 8, 12, 18, 27, 40, 60, ...

    Each look at a 95 % interval is a chance to stop by luck, so looks are few: each comes after 1.5 times the blocks.

    Args:
        num_blocks: Blocks measured so far.
        first_look: Blocks at the first look, at least 2.

    Raises:
        ValueError: When `first_look` is below 2.
    """
    looks = _looks_up_to(num_blocks, first_look)
    return bool(looks) and looks[-1] == num_blocks


def may_end(num_blocks: int, elapsed_s: float, rule: WindowRule) -> bool:
    """True when `decide` may end a window of so many blocks and so much time; otherwise `decide` returns None.

    Raises:
        ValueError: When the rule's first look is below 2.
    """
    is_over = _is_out_of_time(num_blocks, elapsed_s, rule, LEAST_BLOCKS_OF_RACE)
    return is_over or _is_look(num_blocks, elapsed_s, rule)


def decide(
    blocks: Sequence[Block],
    rule: WindowRule,
    incumbent_samples_per_second: float | None,
    counted: Sequence[Block] | None = None,
) -> StopReason | None:
    """The reason to end the window now, or None to go on; ask after every block for which `may_end` is true.

    A narrow interval over a nonstationary window is accepted only at the next look: the extension either steadies the
    window or shows that waiting does not help. A window that both converged and lost its race is reported as converged.

    Args:
        blocks: All blocks of the window so far, in the order of time. The caller must time out a block that never ends.
        rule: The conditions for ending the window.
        incumbent_samples_per_second: Best feasible rate so far, > 0; with None the window is never raced out.
        counted: The blocks in the published rate; None = all. The race leaves out all checkpoints: a save of 2 s in
            half a second of steps would lose every race.

    Raises:
        ValueError: When the incumbent's rate is not finite and positive.
    """
    if incumbent_samples_per_second is not None and not 0 < incumbent_samples_per_second < math.inf:
        raise ValueError(f"the incumbent's rate must be finite and positive, not {incumbent_samples_per_second!r}")
    elapsed_s, plain = _elapsed_s(blocks), [block for block in blocks if not block.num_saves]
    if _is_look(len(blocks), elapsed_s, rule) and elapsed_s >= rule.min_window_s:
        if _is_accepted(blocks if counted is None else counted, rule, len(blocks)):
            return StopReason.CONVERGED
        if incumbent_samples_per_second is not None and len(plain) >= LEAST_BLOCKS:
            upper_bound = estimate_rate(plain, RACE_CONFIDENCE).interval.high
            if upper_bound < incumbent_samples_per_second * rule.race_margin:
                return StopReason.RACED_OUT
    least_rate = rule.race_margin * (incumbent_samples_per_second or 0.0)
    has_lost = all(block.num_samples < least_rate * block.duration_s for block in blocks)
    least_blocks = LEAST_BLOCKS_OF_RACE if has_lost else LEAST_BLOCKS
    # A block with a checkpoint may have to be left out of the rate.
    num_blocks = len(blocks) - min(1, len(blocks) - len(plain))
    return StopReason.TIME_LIMIT if _is_out_of_time(num_blocks, elapsed_s, rule, least_blocks) else None


def block_size(num_workers: int, grad_accum_steps: int, micro_step_s: float, min_block_s: float) -> int:
    """Micro-batches per block.

    A block consists of whole optimizer steps and whole cycles of the workers, so the size is a multiple of the least
    common multiple. A loader-bound job waits once per cycle and then gets a burst: blocks that cut a cycle in two
    differ for no reason, and the interval becomes ten times wider. When the common multiple exceeds 64, a block is
    whole steps with at least one batch of every worker. Each block then cuts at most one cycle, and merging evens out
    the cuts.

    Args:
        num_workers: DataLoader workers, >= 0.
        grad_accum_steps: Micro-batches per optimizer step, >= 1.
        micro_step_s: Expected time of one micro-batch, > 0.
        min_block_s: Shortest block, > 0.

    Raises:
        ValueError: When an argument is out of range.
    """
    if num_workers < 0 or grad_accum_steps < 1:
        raise ValueError(
            f"a block needs workers >= 0 and accumulation >= 1, not {num_workers!r} and {grad_accum_steps!r}"
        )
    if not (0 < micro_step_s < math.inf and 0 < min_block_s < math.inf):
        raise ValueError(f"times must be finite and positive, not {micro_step_s!r} and {min_block_s!r}")
    cycle = math.lcm(max(num_workers, 1), grad_accum_steps)
    if cycle > LONGEST_COMMON_CYCLE:
        cycle = grad_accum_steps * max(1, math.ceil(num_workers / grad_accum_steps))
    # The allowance keeps 7 x 0.01 s from missing 0.07 s by the last digit of a float.
    return cycle * max(1, math.ceil(min_block_s / (cycle * micro_step_s) - 1e-9))


def warmed_up(step_s: Sequence[float], *, window: int = 3, tolerance: float = 0.03) -> bool:
    """True when step times are steady: the means of the last two windows differ by less than the tolerance.

    Args:
        step_s: Times of the optimizer steps so far, in order, each > 0.
        window: Steps per window, at least 1.
        tolerance: Largest relative difference, > 0.

    Raises:
        ValueError: When an argument is out of range.
    """
    if window < 1 or not tolerance > 0:
        raise ValueError(f"warm-up needs window >= 1 and tolerance > 0, not {window!r} and {tolerance!r}")
    if not all(0 < seconds < math.inf for seconds in step_s):
        raise ValueError("step times must be finite and positive")
    if len(step_s) < 2 * window:
        return False
    earlier, later = sum(step_s[-2 * window : -window]), sum(step_s[-window:])
    return abs(later / earlier - 1) < tolerance


def _is_look(num_blocks: int, elapsed_s: float, rule: WindowRule) -> bool:
    """True when the interval is to be examined; with long blocks, also before the usual first look: 4, 6."""
    is_early = num_blocks < rule.min_blocks and elapsed_s >= LONG_BLOCK_S * num_blocks
    return is_look(num_blocks, LEAST_BLOCKS if is_early else rule.min_blocks)


def _looks_up_to(num_blocks: int, first_look: int) -> list[int]:
    if first_look < 2:
        raise ValueError(f"the first look needs at least 2 blocks, not {first_look!r}")
    looks = []
    look = first_look
    while look <= num_blocks:
        looks.append(look)
        look = look * 3 // 2
    return looks


def _is_accepted(blocks: Sequence[Block], rule: WindowRule, num_measured: int) -> bool:
    """True when this look ends the window as converged.

    Before the usual first look the interval must be half as wide, because so few blocks do not show a drift.

    Args:
        blocks: The blocks that count.
        rule: The conditions.
        num_measured: Number of all measured blocks.
    """
    estimate = estimate_rate(blocks)
    if estimate.half_width_ratio > rule.half_width_ratio * (EARLY_FACTOR if num_measured < rule.min_blocks else 1.0):
        return False
    return not estimate.nonstationary or _was_extended(blocks, rule)


def _was_extended(blocks: Sequence[Block], rule: WindowRule) -> bool:
    """True when an earlier look was narrow enough: the window went on only because it was nonstationary."""
    earlier_windows = (blocks[:look] for look in _looks_up_to(len(blocks) - 1, rule.min_blocks))
    return any(
        _elapsed_s(window) >= rule.min_window_s and estimate_rate(window).half_width_ratio <= rule.half_width_ratio
        for window in earlier_windows
    )


def _is_out_of_time(num_blocks: int, elapsed_s: float, rule: WindowRule, least_blocks: int) -> bool:
    """Whether the time is up; a window that is about to have the least blocks goes on.

    YOLOX on an H100 had three blocks of 5.2 s, where the probe had seen steps of a sixth of their time.
    """
    if num_blocks >= least_blocks:
        return elapsed_s >= rule.max_window_s
    patience_s = _PATIENCE * rule.max_window_s
    expected_s = elapsed_s * least_blocks / num_blocks if num_blocks else math.inf
    return elapsed_s > patience_s and expected_s > _MOST_PATIENCE * patience_s


def _elapsed_s(blocks: Sequence[Block]) -> float:
    return sum(block.duration_s for block in blocks)
