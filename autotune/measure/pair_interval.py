"""The half width of an interval around a mean of very few values, by a prior for their spread.

Two or three runs say little about the spread of runs: a t-interval of three rounds that say 1.5, 2.0 and 1.9 reaches
below 1. The model here is hierarchical. Values are normal around a common mean. The logarithm of the standard deviation
is normal around the logarithm of a typical spread, and the typical spread rises with the spread of whole rounds. The
mean's posterior is a mixture of normal distributions over the standard deviation, summed on a grid.

Gelman, Carlin, Stern et al., "Bayesian Data Analysis", 3rd edition, section 5.4, has the model. Smyth, "Linear models
and empirical Bayes methods", 2004, has the same idea as a moderated t.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean, stdev

TYPICAL_PAIR_SPREAD = 0.05
"""Typical standard deviation of the logarithm of the ratio of two runs of a round, on a machine without other load."""
DEVICE_PAIR_SPREAD = 0.02
"""The same of runs in which the device was busy for nearly all of the time, and the blocks of a run were alike. One
recording, of GPT-2 on an H200, has 34 pairs of runs of equal settings: the pairs differ by 0.2 % in the median, by
0.8 % as a standard deviation, and by 3.9 % at most."""
TYPICAL_RUN_SPREAD = TYPICAL_PAIR_SPREAD / math.sqrt(2)
"""Typical standard deviation of the logarithm of one run's rate."""
PRIOR_WIDTH = 1.2
"""Standard deviation of the logarithm of a spread around the typical one: in 95 of 100 cases within a factor of 11."""
UNEVEN_WIDTH = 0.7
"""Standard deviation of the logarithm of a contender's spread around that of all contenders on a machine: in 95 of 100
cases within a factor of 4."""
MOST_TYPICAL_SPREAD = 0.4
"""Rounds that differ by more than this, all contenders alike, say no more about the spread of a ratio."""
_LEAST, _MOST, _POINTS = 1e-3, 10.0, 61
"""The grid of standard deviations, equidistant in the logarithm: fine enough for the few dozen values of the finals."""


def half_width(
    values: Sequence[float], typical_spread: float, confidence: float, prior_width: float = PRIOR_WIDTH
) -> float:
    """Half the width of the interval around the mean of the values, in the values' unit.

    Args:
        values: At least 2 values of independent runs or rounds, as logarithms.
        typical_spread: Usual standard deviation of the values, above 0.
        confidence: Two-sided, above 0 and below 1.
        prior_width: Standard deviation of the logarithm of a spread around the typical spread, above 0.

    Raises:
        ValueError: Fewer than 2 values, or a typical spread or a confidence out of range.
    """
    if len(values) < 2:
        raise ValueError(f"a spread needs at least 2 values, not {len(values)}")
    if not 0 < typical_spread < math.inf:
        raise ValueError(f"the typical spread must be above 0 and finite, not {typical_spread!r}")
    if not 0 < confidence < 1:
        raise ValueError(f"the confidence must be above 0 and below 1, not {confidence!r}")
    mean = fmean(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    weights = _weights(squares, len(values), typical_spread, prior_width)
    return _quantile(weights, math.sqrt(len(values)), 1 - confidence)


def pair_half_width(
    ours: Sequence[float],
    theirs: Sequence[float],
    confidence: float,
    others: Sequence[Sequence[float]] = (),
    *,
    least_typical: float = TYPICAL_PAIR_SPREAD,
) -> float:
    """Half the width of the interval around the mean of `ours[i] - theirs[i]`, both logarithms of rates by round.

    Independent errors of runs give the sums `ours[i] + theirs[i]` the variance of the differences; slow rounds give the
    sums a larger variance. The spread of the sums raises the typical spread. Two differences may agree by chance on a
    noisy machine, and shall not make a narrow interval. Runs of further contenders show the noise of the machine too,
    without slow rounds, and narrow the prior of the spread.

    Args:
        ours: At least 2 logarithms of rates, by round.
        theirs: As many, of the same rounds.
        confidence: Two-sided, above 0 and below 1.
        others: Logarithms of rates of other contenders in the first rounds or in all, at least 2 each.
        least_typical: Typical standard deviation of a difference on a machine without other load, above 0.

    Raises:
        ValueError: Different numbers of values, fewer than 2, or a typical spread or a confidence out of range.
    """
    differences = [mine - yours for mine, yours in zip(ours, theirs, strict=True)]
    if len(differences) < 2:
        raise ValueError(f"a spread needs at least 2 rounds, not {len(differences)}")
    sums = [mine + yours for mine, yours in zip(ours, theirs, strict=True)]
    usual = max(least_typical, min(MOST_TYPICAL_SPREAD, stdev(sums)))
    alone = half_width(differences, usual, confidence)
    known = _typical_beside(usual, sums, others)
    # A contender with erratic runs does not widen the interval of steady contenders.
    return alone if known is None else min(alone, half_width(differences, known[0], confidence, known[1]))


def _typical_beside(
    usual: float, sums: Sequence[float], others: Sequence[Sequence[float]]
) -> tuple[float, float] | None:
    """The typical spread of a difference and the width of the prior, from the usual spread and the other contenders.

    The precisions of the logarithms of both spreads add up. The others' spread is as uncertain as its degrees of
    freedom and the unevenness of contenders make it. None without others.
    """
    spread, freedom, num = _spread_beside(sums, others)
    if not freedom:
        return None
    before = 1 / (PRIOR_WIDTH**2 - UNEVEN_WIDTH**2)
    found = 1 / (UNEVEN_WIDTH**2 / num + 1 / (2 * freedom))
    seen = math.log(max(spread, _LEAST))
    middle = (before * math.log(usual) + found * seen) / (before + found)
    return math.exp(middle), math.sqrt(1 / (before + found) + UNEVEN_WIDTH**2)


def _spread_beside(sums: Sequence[float], others: Sequence[Sequence[float]]) -> tuple[float, int, int]:
    """Spread of a difference of two runs by the other contenders, the degrees of freedom, and the number of contenders.

    The residuals of the rates after means of contenders and of rounds, without the differences of the pair: the pair
    has an interval already. Of contenders with different numbers of rounds, the contenders with the most values count.
    """
    best: tuple[float, int, int] = (0.0, 0, 0)
    rows = sorted((row for row in others if len(row) > 1), key=len, reverse=True)
    for num in range(1, len(rows) + 1):
        num_rounds = len(rows[num - 1])
        freedom = num * (num_rounds - 1)
        if freedom <= best[1]:
            continue
        # The pair counts as two runs with the mean of both, without a difference.
        block = [[value / 2 for value in sums[:num_rounds]]] * 2 + [list(row[:num_rounds]) for row in rows[:num]]
        by_round = [fmean(column) for column in zip(*block, strict=True)]
        squares = 0.0
        for row in block:
            left = [value - level for value, level in zip(row, by_round, strict=True)]
            middle = fmean(left)
            squares += math.fsum((value - middle) ** 2 for value in left)
        best = (math.sqrt(2 * squares / freedom), freedom, num)
    return best


@lru_cache(maxsize=1)
def _grid() -> tuple[float, ...]:
    step = (math.log(_MOST) - math.log(_LEAST)) / (_POINTS - 1)
    return tuple(_LEAST * math.exp(step * index) for index in range(_POINTS))


def _weights(squares: float, num: int, typical_spread: float, prior_width: float) -> list[tuple[float, float]]:
    """Posterior weight of every standard deviation of the grid, given the sum of squares; the weights sum to 1."""
    logs = [
        -0.5 * (math.log(spread / typical_spread) / prior_width) ** 2
        - (num - 1) * math.log(spread)
        - squares / (2 * spread * spread)
        for spread in _grid()
    ]
    most = max(logs)
    weights = [math.exp(value - most) for value in logs]
    total = math.fsum(weights)
    return [(spread, weight / total) for spread, weight in zip(_grid(), weights, strict=True)]


def _quantile(weights: Sequence[tuple[float, float]], root_num: float, tails: float) -> float:
    """The distance from the mean beyond which the mixture has the given probability in both tails together."""

    def beyond(distance: float) -> float:
        scale = distance * root_num / math.sqrt(2)
        return math.fsum(weight * math.erfc(scale / spread) for spread, weight in weights)

    low, high = 0.0, 1e-3
    while beyond(high) > tails:
        low, high = high, 2 * high
    while high - low > 1e-5 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle) > tails else (low, middle)
    return high
