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
TYPICAL_RUN_SPREAD = TYPICAL_PAIR_SPREAD / math.sqrt(2)
"""Typical standard deviation of the logarithm of one run's rate."""
PRIOR_WIDTH = 1.2
"""Standard deviation of the logarithm of a spread around the typical one: in 95 of 100 cases within a factor of 11."""
MOST_TYPICAL_SPREAD = 0.4
"""Rounds that differ by more than this, all contenders alike, say no more about the spread of a ratio."""
_LEAST, _MOST, _POINTS = 1e-3, 10.0, 61
"""The grid of standard deviations, equidistant in the logarithm: fine enough for the few dozen values of the finals."""


def half_width(values: Sequence[float], typical_spread: float, confidence: float) -> float:
    """Half the width of the interval around the mean of the values, in the values' unit.

    Args:
        values: At least 2 values of independent runs or rounds, as logarithms.
        typical_spread: Standard deviation that such values usually have, above 0.
        confidence: Two-sided, above 0 and below 1.

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
    weights = _weights(squares, len(values), typical_spread)
    return _quantile(weights, math.sqrt(len(values)), 1 - confidence)


def pair_half_width(
    ours: Sequence[float], theirs: Sequence[float], confidence: float, typical_spread: float = TYPICAL_PAIR_SPREAD
) -> float:
    """Half the width of the interval around the mean of `ours[i] - theirs[i]`, both logarithms of rates by round.

    Independent errors of runs give the sums `ours[i] + theirs[i]` the variance of the differences; slow rounds give the
    sums a larger variance. The spread of the sums raises the typical spread. Two differences may agree by chance on a
    noisy machine, and shall not make a narrow interval.

    Args:
        ours: At least 2 logarithms of rates, by round.
        theirs: As many, of the same rounds.
        confidence: Two-sided, above 0 and below 1.
        typical_spread: Standard deviation of the differences on a quiet machine, above 0.

    Raises:
        ValueError: Different numbers of values, fewer than 2, or an argument out of range.
    """
    differences = [mine - yours for mine, yours in zip(ours, theirs, strict=True)]
    if len(differences) < 2:
        raise ValueError(f"a spread needs at least 2 rounds, not {len(differences)}")
    of_sums = stdev([mine + yours for mine, yours in zip(ours, theirs, strict=True)])
    return half_width(differences, max(typical_spread, min(MOST_TYPICAL_SPREAD, of_sums)), confidence)


@lru_cache(maxsize=1)
def _grid() -> tuple[float, ...]:
    step = (math.log(_MOST) - math.log(_LEAST)) / (_POINTS - 1)
    return tuple(_LEAST * math.exp(step * index) for index in range(_POINTS))


def _weights(squares: float, num: int, typical_spread: float) -> list[tuple[float, float]]:
    """Posterior weight of every standard deviation of the grid, given the sum of squares; they sum to 1."""
    logs = [
        -0.5 * (math.log(spread / typical_spread) / PRIOR_WIDTH) ** 2
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
