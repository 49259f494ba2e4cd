"""How well a rate is known: Student-t intervals over blocks that may be correlated in time.

The interval speaks of repeatability within one trial. What is slower than the window is not in it, such as interference
of another job: only measuring again at another time shows that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from autotune.measure.block import Block, merge, rate_samples_per_second
from autotune.measure.build_rate import steady_blocks, steady_factor
from autotune.measure.rare_waits import rare_wait_error
from autotune.measure.student_t import student_t_quantile

MIN_MERGED_BLOCKS = 8
"""Merging stops before fewer blocks would be left: a t-interval on fewer is wide for want of blocks, not for noise."""

CLEAR_CYCLE_ERRORS = 1.5
"""Standard errors of the autocorrelation, 1 / sqrt(blocks), below zero from which on blocks are taken for parts of a
cycle, such as a validation every few of them. Above zero one is enough: there the interval would be too narrow, where
here it is only wider than it need be, and what looks like a cycle by chance is to cost it no blocks."""

SPLIT_HALF_STANDARD_ERRORS = 3.0
"""First and second half must differ by more than this many standard errors of their ratio to be called
nonstationary."""

SPLIT_HALF_MIN_DIFFERENCE = 0.005
"""A smaller relative difference of the halves is never called nonstationary: half a percent is below every difference
that anything is decided by (ties are 1 %, the finals' half-width 2 %), but a very steady job would show it as
significant."""

_SPLIT_HALF_MIN_BLOCKS = 8
"""With fewer than 4 blocks a half, the standard error of a half is itself too uncertain to judge by."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A confidence interval of a rate or a ratio; `ValueError` unless 0 <= low <= high, both finite."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high < math.inf:
            raise ValueError(f"an interval needs 0 <= low <= high, both finite, not {self.low!r} and {self.high!r}")

    @property
    def half_width_ratio(self) -> float:
        """Half the width relative to the centre, 0 to 1."""
        return (self.high - self.low) / (self.high + self.low) if self.high > 0 else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RateEstimate:
    """A throughput and how well it is known."""

    samples_per_second: float
    """Total samples over total time of all the blocks given, times what the workers built ahead (`steady_factor`)."""
    interval: Interval
    """Of `samples_per_second`, at the confidence asked for; its low end is cut at 0."""
    half_width_ratio: float
    """Half-width relative to `samples_per_second`, before the cut at 0; so it may exceed 1."""
    num_blocks: int
    """Blocks that the interval rests on, after merging."""
    lag1_autocorrelation: float
    """Of the rates of these blocks. Clearly positive: the interval is too narrow, and clearly negative: too wide, and
    there was nothing left to merge."""
    nonstationary: bool
    """Whether the rates of the first and second half differ by more than chance: it drifts, or something changed."""
    merged_factor: int
    """How many of the blocks given make one block of the interval: 1, 2, 4, ..."""


def estimate_rate(blocks: Sequence[Block], confidence: float = 0.95) -> RateEstimate:
    """Throughput over the blocks with a t-interval that allows for correlation between neighbours.

    Where the loader binds, both are of its steady rate: what its workers built counts beside what they delivered
    (`steady_factor`, `steady_blocks`).

    Neighbouring blocks are merged in pairs, again and again, while their rates correlate, or clearly take turns, and at
    least 8 blocks would be left. What a trailing block, which is then no part of a pair, makes of the rate is added to
    the error. Where waits for data are rare, more of them than were seen are allowed for (`rare_wait_error`).

    Args:
        blocks: Consecutive blocks of one phase, in the order of time; at least 2. They may differ in samples and
            duration.
        confidence: Two-sided level, above 0 and below 1.

    Raises:
        ValueError: When there are fewer than 2 blocks, several phases, or the confidence is out of range.
    """
    if len(blocks) < 2:
        raise ValueError(f"a rate estimate needs at least 2 blocks, not {len(blocks)}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be above 0 and below 1, not {confidence!r}")
    if len({block.phase for block in blocks}) > 1:
        raise ValueError("a rate estimate needs blocks of one phase")
    steady = steady_blocks(blocks)
    merged, factor = _merge_until_uncorrelated(steady)
    rate = rate_samples_per_second(blocks) * steady_factor(blocks)
    standard_error = math.hypot(_relative_standard_error(merged), rare_wait_error(blocks))
    # The centre is of all blocks. Of a cycle that takes most of its time in one block the trailing ones may have half.
    of_trailing = abs(rate_samples_per_second(steady) / rate_samples_per_second(merged) - 1)
    half_width_ratio = student_t_quantile((1 + confidence) / 2, len(merged) - 1) * standard_error + of_trailing
    return RateEstimate(
        samples_per_second=rate,
        interval=Interval(low=max(0.0, rate * (1 - half_width_ratio)), high=rate * (1 + half_width_ratio)),
        half_width_ratio=half_width_ratio,
        num_blocks=len(merged),
        lag1_autocorrelation=_lag1_autocorrelation(merged),
        nonstationary=_is_nonstationary(merged),
        merged_factor=factor,
    )


def mean_and_half_width(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """The mean of independent values, and half the width of its t-interval.

    Args:
        values: At least 2.
        confidence: Two-sided level, above 0 and below 1.

    Raises:
        ValueError: When there are fewer than 2 values, or the confidence is out of range.
    """
    num = len(values)
    if num < 2:
        raise ValueError(f"an interval needs at least 2 values, not {num}")
    mean = sum(values) / num
    variance = sum((value - mean) ** 2 for value in values) / (num - 1)
    return mean, student_t_quantile((1 + confidence) / 2, num - 1) * math.sqrt(variance / num)


def _merge_until_uncorrelated(blocks: Sequence[Block]) -> tuple[Sequence[Block], int]:
    merged, factor = blocks, 1
    while len(merged) // 2 >= MIN_MERGED_BLOCKS and _is_correlated(merged):
        merged, factor = merge(merged, 2), 2 * factor
    return merged, factor


def _is_correlated(blocks: Sequence[Block]) -> bool:
    by_chance = 1 / math.sqrt(len(blocks))
    return not -CLEAR_CYCLE_ERRORS * by_chance <= _lag1_autocorrelation(blocks) <= by_chance


def _lag1_autocorrelation(blocks: Sequence[Block]) -> float:
    rates = [block.num_samples / block.duration_s for block in blocks]
    mean = sum(rates) / len(rates)
    deviations = [rate - mean for rate in rates]
    variation = sum(deviation * deviation for deviation in deviations)
    if variation == 0:
        return 0.0
    return sum(a * b for a, b in pairwise(deviations)) / variation


def _relative_standard_error(blocks: Sequence[Block]) -> float:
    """Standard error of the ratio estimator over the ratio itself, by the delta method.

    The residual of a block is the samples it has beyond what the common rate predicts for its duration, so blocks may
    differ in both.
    """
    rate = rate_samples_per_second(blocks)
    squares = sum((block.num_samples - rate * block.duration_s) ** 2 for block in blocks)
    num = len(blocks)
    return math.sqrt(squares * num / (num - 1)) / sum(block.num_samples for block in blocks)


def _is_nonstationary(blocks: Sequence[Block]) -> bool:
    if len(blocks) < _SPLIT_HALF_MIN_BLOCKS:
        return False
    middle = len(blocks) // 2
    first, second = blocks[:middle], blocks[middle:]
    # The error within the halves: that of the whole would grow with the very difference which is looked for.
    standard_error = math.hypot(_relative_standard_error(first), _relative_standard_error(second))
    difference = abs(rate_samples_per_second(first) / rate_samples_per_second(second) - 1)
    return difference > max(SPLIT_HALF_STANDARD_ERRORS * standard_error, SPLIT_HALF_MIN_DIFFERENCE)
