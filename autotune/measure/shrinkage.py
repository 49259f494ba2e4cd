"""Shrunken means: estimates of the true values of a table's cells, from a few noisy measurements of each cell. Pure.

The best of two hundred noisy means is too good, because the luckiest cell competes with the fastest. Each mean is
therefore moved towards the cell's value predicted from the whole table, a sum of effects, one per factor. Means move
further with more noise, and with sums that describe the table better. When factors interact, the means stay.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

PRIOR_FREEDOM = 4.0
"""Degrees of freedom given to the pooled noise. Two measurements hardly determine a cell's own noise."""

NUM_SWEEPS = 50
"""Sweeps of the fit of the effects: a single sweep is exact on a complete table, and sweeps converge quickly with
holes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shrunken:
    """The estimated worth of one cell."""

    mean: float
    standard_error: float
    """Standard error of the mean, from the cell's noise and the table's prediction together."""


def shrunken_means(values: Sequence[Sequence[float]], levels: Sequence[Sequence[Hashable]]) -> tuple[Shrunken, ...]:
    """The shrunken mean of every cell of a table.

    Args:
        values: At least 1 measurement of each cell, on a scale with additive effects, such as the logarithm of a rate.
        levels: Each cell's place in the table: one level per factor.

    Raises:
        ValueError: When the two have different lengths, a cell has no measurement, or no cell has two.
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
    leverage = min(1.0, num_effects / len(means))  # average share of a cell's own error in its fit
    shrunken = []
    for mean, fit, error in zip(means, fitted, errors, strict=True):
        weight = 1.0 if math.isinf(between) or between + error == 0 else between / (between + error)
        variance = (weight + (1 - weight) * leverage) * error
        shrunken.append(Shrunken(mean=fit + weight * (mean - fit), standard_error=math.sqrt(variance)))
    return tuple(shrunken)


def pooled_variance(values: Sequence[Sequence[float]]) -> float:
    """Variance of a measurement within a cell, over all cells.

    Raises:
        ValueError: When no cell was measured twice.
    """
    freedom = sum(len(cell) - 1 for cell in values)
    if freedom < 1:
        raise ValueError("no cell was measured twice, so the noise is not known")
    return sum((value - sum(cell) / len(cell)) ** 2 for cell in values for value in cell) / freedom


def _additive_fit(means: Sequence[float], levels: Sequence[Sequence[Hashable]]) -> list[float]:
    """The fit nearest to the means: a common level plus one effect per factor."""
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
    """Variance of the true means around the fit; infinite with too few cells to tell, so that nothing shrinks."""
    freedom = len(means) - num_effects
    if freedom < 1:
        return math.inf
    around = sum((mean - fit) ** 2 for mean, fit in zip(means, fitted, strict=True)) / freedom
    return max(0.0, around - sum(errors) / len(errors))


def _num_effects(levels: Sequence[Sequence[Hashable]]) -> int:
    return 1 + sum(len({place[factor] for place in levels}) - 1 for factor in range(len(levels[0])))
