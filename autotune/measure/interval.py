"""How well a rate is known: Student-t intervals over blocks with possible correlation in time.

The interval describes repeatability within one trial. Changes slower than the window, such as interference from another
job, are not in the interval; only a second measurement at another time shows them.
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
"""Least number of blocks left by merging. A t-interval on fewer blocks is wide for want of blocks."""

CLEAR_CYCLE_ERRORS = 1.5
"""Negative autocorrelation at which blocks count as parts of a cycle, such as a validation every few blocks, in
standard errors (1 / sqrt(blocks)). For positive autocorrelation one standard error is enough, because the interval
would be too narrow. Negative autocorrelation only makes the interval too wide, so chance should cost no blocks."""

SPLIT_HALF_STANDARD_ERRORS = 3.0
"""A window is nonstationary when its halves' rates differ by more than this many standard errors of their ratio."""

SPLIT_HALF_MIN_DIFFERENCE = 0.005
"""Least relative difference of the halves of a nonstationary window. Half a percent is below every difference used in a
decision (ties are 1 %, the finals' half-width 2 %), but a very steady job would show it as significant."""

_SPLIT_HALF_MIN_BLOCKS = 8
"""With fewer than 4 blocks per half, the standard error of a half is too uncertain for a verdict."""


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
    """A throughput with its confidence interval."""

    samples_per_second: float
    """Total samples over total time of all given blocks, times `steady_factor` for batches built ahead."""
    interval: Interval
    """Interval of `samples_per_second` at the requested confidence; the low end is cut at 0."""
    half_width_ratio: float
    """Half-width relative to `samples_per_second`, before the cut at 0, so it may exceed 1."""
    num_blocks: int
    """Number of blocks after merging; the interval rests on them."""
    lag1_autocorrelation: float
    """Lag-1 autocorrelation of the merged blocks' rates. Clearly positive: the interval is too narrow. Clearly
    negative: the interval is too wide. Further merging would leave too few blocks."""
    nonstationary: bool
    """True when the rates of the first and second half differ by more than chance: the rate drifts or jumped."""
    merged_factor: int
    """Number of given blocks per block of the interval: 1, 2, 4, ..."""


def estimate_rate(blocks: Sequence[Block], confidence: float = 0.95) -> RateEstimate:
    """Throughput over the blocks, with a t-interval that allows for correlation between neighbours.

    For a loader-bound job, rate and interval describe the steady rate: batches built by the workers count beside
    batches delivered (`steady_factor`, `steady_blocks`).

    While the blocks' rates correlate or clearly alternate, neighbouring blocks are merged in pairs, down to 8 blocks. A
    trailing block without a partner is left out of the interval, and its effect on the rate is added to the error. For
    a loader with rare waits, the error allows for more waits than the window saw (`rare_wait_error`).

    Args:
        blocks: At least 2 consecutive blocks of one phase, of any size and duration, in the order of time.
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
    # The rate uses all blocks. In a cycle with most of its time in one block, the trailing blocks may have half the
    # time.
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

    The residual of a block is the block's samples minus the common rate times the block's duration. So both may differ.
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
    # Use the error within the halves: the error of the whole window would grow with the difference between its halves.
    standard_error = math.hypot(_relative_standard_error(first), _relative_standard_error(second))
    difference = abs(rate_samples_per_second(first) / rate_samples_per_second(second) - 1)
    return difference > max(SPLIT_HALF_STANDARD_ERRORS * standard_error, SPLIT_HALF_MIN_DIFFERENCE)
