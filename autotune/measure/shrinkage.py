"""What the cells of a table are truly worth, from a few noisy measurements of each: shrunken means. Pure.

The best of two hundred noisy means is too good: the luckiest as well as the fastest. So each mean is moved towards
what the table as a whole says of its place (a sum of one effect per factor), the more the noisier it is and the better
such sums describe the other cells. Where factors interact the sums describe little, and the means stay as they are.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

PRIOR_FREEDOM = 4.0
"""Degrees of freedom by which the pooled noise counts beside a cell's own, which two measurements hardly tell."""

NUM_SWEEPS = 50
"""Of the fit of the effects; on a complete table the first one is exact, on one with holes they converge quickly."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shrunken:
    """What one cell is worth."""

    mean: float
    standard_error: float
    """Of the mean, the noise of the cell and what the table says of its place taken together."""


def shrunken_means(values: Sequence[Sequence[float]], levels: Sequence[Sequence[Hashable]]) -> tuple[Shrunken, ...]:
    """The shrunken mean of every cell of a table.

    Args:
        values: Measurements of each cell, at least 1; on a scale on which effects add up, such as the logarithm of a
            rate.
        levels: The cell's place in the table: one level per factor.

    Raises:
        ValueError: The two have different lengths, a cell has no measurement, or none has two.
    """
    if len(values) != len(levels) or not all(values):
        raise ValueError("every cell needs a place and at least 1 measurement")
    means = [sum(cell) / len(cell) for cell in values]
    pooled = pooled_variance(values)
    squares = [sum((value - mean) ** 2 for value in cell) for cell, mean in zip(values, means, strict=True)]
    errors = [
        (PRIOR_FREEDOM * pooled + square) / (PRIOR_FREEDOM + len(cell) - 1) / len(cell)
        for cell, square in zip(values, squares, strict=True)
    ]
    fitted = _additive_fit(means, levels)
    num_effects = _num_effects(levels)
    between = _between_variance(means, fitted, errors, num_effects)
    leverage = min(1.0, num_effects / len(means))  # how much of its own error a cell's fit has, on average
    shrunken = []
    for mean, fit, error in zip(means, fitted, errors, strict=True):
        weight = 1.0 if math.isinf(between) or between + error == 0 else between / (between + error)
        variance = (weight + (1 - weight) * leverage) * error
        shrunken.append(Shrunken(mean=fit + weight * (mean - fit), standard_error=math.sqrt(variance)))
    return tuple(shrunken)


def pooled_variance(values: Sequence[Sequence[float]]) -> float:
    """Variance of one measurement within its cell, over all cells.

    Raises:
        ValueError: No cell was measured twice.
    """
    freedom = sum(len(cell) - 1 for cell in values)
    if freedom < 1:
        raise ValueError("no cell was measured twice, so the noise is not known")
    return sum((value - sum(cell) / len(cell)) ** 2 for cell in values for value in cell) / freedom


def _additive_fit(means: Sequence[float], levels: Sequence[Sequence[Hashable]]) -> list[float]:
    """The sum of a common level and one effect per factor that comes nearest to the means."""
    centre = sum(means) / len(means)
    residuals = [mean - centre for mean in means]
    for _ in range(NUM_SWEEPS):
        for factor in range(len(levels[0])):
            groups: dict[Hashable, list[int]] = defaultdict(list)
            for cell, place in enumerate(levels):
                groups[place[factor]].append(cell)
            for cells in groups.values():
                effect = sum(residuals[cell] for cell in cells) / len(cells)
                for cell in cells:
                    residuals[cell] -= effect
    return [mean - residual for mean, residual in zip(means, residuals, strict=True)]


def _between_variance(
    means: Sequence[float], fitted: Sequence[float], errors: Sequence[float], num_effects: int
) -> float:
    """Variance of the true means around the fit; infinite where there are too few cells to tell, so nothing shrinks."""
    freedom = len(means) - num_effects
    if freedom < 1:
        return math.inf
    around = sum((mean - fit) ** 2 for mean, fit in zip(means, fitted, strict=True)) / freedom
    return max(0.0, around - sum(errors) / len(errors))


def _num_effects(levels: Sequence[Sequence[Hashable]]) -> int:
    return 1 + sum(len({place[factor] for place in levels}) - 1 for factor in range(len(levels[0])))
