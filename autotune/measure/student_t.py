"""Quantiles of Student's t-distribution, by the standard library alone: trials load no scipy."""

import math
from functools import lru_cache

_T_LARGEST_DF = 1e6
"""Above so many degrees of freedom the normal quantile is right to 1e-5, and the continued fraction is slow."""


@lru_cache(maxsize=256)
def student_t_quantile(p: float, df: float) -> float:
    """The `p`-quantile of Student's t-distribution: a t-distributed variable stays below it with probability `p`.

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


def _t_upper_tail(t: float, df: float) -> float:
    """Probability that a t-distributed variable exceeds `t` >= 0.

    Half the regularised incomplete beta function I_x(df/2, 1/2) at x = df / (df + t^2).
    """
    if t == 0:
        return 0.5
    square = t * t
    # Compute both from the quotient, neither as 1 minus the second: either may lie far below the precision of 1.
    x, y = 1 / (1 + square / df), 1 / (1 + df / square)
    a, b = df / 2, 0.5
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) - a * math.log1p(square / df) + b * math.log(y)
    # The continued fraction converges fast on only one side of the beta distribution's mean; I_x(a,b) = 1 - I_y(b,a).
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
