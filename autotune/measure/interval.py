"""How well a rate is known: Student-t intervals over blocks that may be correlated in time.

The interval speaks of repeatability within one trial. What is slower than the window is not in it, such as interference
of another job: only measuring again at another time shows that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from autotune.measure.block import Block, merge, rate_samples_per_second
from autotune.measure.building import steady_blocks, steady_factor
from autotune.measure.rare_waits import rare_wait_error

MIN_MERGED_BLOCKS = 8
"""Merging stops before fewer blocks would be left: a t-interval on fewer is wide for want of blocks, not for noise."""

SPLIT_HALF_STANDARD_ERRORS = 3.0
"""First and second half must differ by more than this many standard errors of their ratio to be called
nonstationary."""

SPLIT_HALF_MIN_DIFFERENCE = 0.005
"""A smaller relative difference of the halves is never called nonstationary: half a percent is below every difference
that anything is decided by (ties are 1 %, the finals' half-width 2 %), but a very steady job would show it as
significant."""

_SPLIT_HALF_MIN_BLOCKS = 8
"""With fewer than 4 blocks a half, the standard error of a half is itself too uncertain to judge by."""

_T_LARGEST_DF = 1e6
"""Beyond it the quantile is that of the normal distribution to 1e-5, and the continued fraction becomes slow."""


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
    """Of the rates of these blocks. Clearly positive: the interval is too narrow and there was nothing left to
    merge."""
    nonstationary: bool
    """Whether the rates of the first and second half differ by more than chance: it drifts, or something changed."""
    merged_factor: int
    """How many of the blocks given make one block of the interval: 1, 2, 4, ..."""


def estimate_rate(blocks: Sequence[Block], confidence: float = 0.95) -> RateEstimate:
    """Throughput over the blocks with a t-interval that allows for correlation between neighbours.

    Where the loader binds, both are of its steady rate: what its workers built counts beside what they delivered
    (`steady_factor`, `steady_blocks`).

    Neighbouring blocks are merged in pairs, again and again, while their rates correlate and at least 8 blocks would
    be left. Where waits for data are rare, more of them than were seen are allowed for (`rare_wait_error`).

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
    merged, factor = _merge_until_uncorrelated(steady_blocks(blocks))
    # The centre is of all blocks: a trailing one that merging drops still counts in the rate, only not in its error.
    rate = rate_samples_per_second(blocks) * steady_factor(blocks)
    standard_error = math.hypot(_relative_standard_error(merged), rare_wait_error(blocks))
    half_width_ratio = student_t_quantile((1 + confidence) / 2, len(merged) - 1) * standard_error
    return RateEstimate(
        samples_per_second=rate,
        interval=Interval(low=max(0.0, rate * (1 - half_width_ratio)), high=rate * (1 + half_width_ratio)),
        half_width_ratio=half_width_ratio,
        num_blocks=len(merged),
        lag1_autocorrelation=_lag1_autocorrelation(merged),
        nonstationary=_is_nonstationary(merged),
        merged_factor=factor,
    )


@lru_cache(maxsize=256)
def student_t_quantile(p: float, df: float) -> float:
    """The value that a t-distributed variable stays below with probability `p`.

    Accurate to 1e-5, relative, for tails down to 1e-100.

    Args:
        p: Probability, above 0 and below 1.
        df: Degrees of freedom, at least 1, not necessarily whole; infinity gives the normal distribution.

    Raises:
        ValueError: When `p` or `df` is out of range.
    """
    if not 0 < p < 1:
        raise ValueError(f"p must be above 0 and below 1, not {p!r}")
    if not df >= 1:
        raise ValueError(f"df must be at least 1, not {df!r}")
    if p == 0.5:
        return 0.0
    df = min(df, _T_LARGEST_DF)
    tail = min(p, 1 - p)
    low, high = 0.0, 1.0
    while _t_upper_tail(high, df) > tail:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if _t_upper_tail(middle, df) > tail:
            low = middle
        else:
            high = middle
    return high if p > 0.5 else -high


def _merge_until_uncorrelated(blocks: Sequence[Block]) -> tuple[Sequence[Block], int]:
    merged, factor = blocks, 1
    while len(merged) // 2 >= MIN_MERGED_BLOCKS and _lag1_autocorrelation(merged) > 1 / math.sqrt(len(merged)):
        merged, factor = merge(merged, 2), 2 * factor
    return merged, factor


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


def _t_upper_tail(t: float, df: float) -> float:
    """Probability that a t-distributed variable exceeds `t` >= 0.

    It is half the regularised incomplete beta function I_x(df/2, 1/2) at x = df / (df + t^2).
    """
    if t == 0:
        return 0.5
    square = t * t
    # Both from the quotient, neither as 1 minus the other: one of them may be far below the precision of 1.
    x, y = 1 / (1 + square / df), 1 / (1 + df / square)
    a, b = df / 2, 0.5
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) - a * math.log1p(square / df) + b * math.log(y)
    # The continued fraction converges fast on one side of the mean of the beta distribution; I_x(a,b) = 1 - I_y(b,a).
    if x < (a + 1) / (a + b + 2):
        return 0.5 * math.exp(log_front) * _beta_fraction(a, b, x) / a
    return 0.5 - 0.5 * math.exp(log_front) * _beta_fraction(b, a, y) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Continued fraction of the incomplete beta function (DLMF 8.17.22), by the modified Lentz method."""
    tiny = 1e-300
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1), tiny)
    result = d
    step = 1
    while True:
        even = step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step))
        odd = -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1))
        for coefficient in (even, odd):
            d = 1 / _away_from_zero(1 + coefficient * d, tiny)
            c = _away_from_zero(1 + coefficient / c, tiny)
            result *= c * d
        if abs(c * d - 1) < 1e-13:
            return result
        step += 1


def _away_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny
