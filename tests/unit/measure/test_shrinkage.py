"""Shrunken means: nothing moves without noise, everything moves towards the table with it, the luckiest the most."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from autotune.measure.shrinkage import pooled_variance, shrunken_means

PLACES = list(itertools.product(range(6), range(5), range(4)))
EFFECTS = [(0.0, 0.1, 0.3, 0.35, 0.2, 0.5), (0.0, -0.2, 0.1, 0.15, 0.05), (0.0, 0.05, 0.1, -0.3)]


def truth(place, interaction=0.0):
    additive = sum(effects[level] for effects, level in zip(EFFECTS, place, strict=True))
    return additive + interaction * math.sin(7.0 * place[0] * place[1] + place[2])


def table(deviation, *, seed=0, repeats=2, interaction=0.0):
    chance = random.Random(seed)
    return [[truth(place, interaction) + chance.gauss(0, deviation) for _ in range(repeats)] for place in PLACES]


def error(estimates, interaction=0.0):
    return math.sqrt(
        sum((e - truth(p, interaction)) ** 2 for e, p in zip(estimates, PLACES, strict=True)) / len(PLACES)
    )


def test_without_noise_the_means_stay_as_they_are():
    values = table(0.0, interaction=0.2)
    shrunken = shrunken_means(values, PLACES)
    assert [cell.mean for cell in shrunken] == pytest.approx([cell[0] for cell in values])
    assert all(cell.standard_error == 0.0 for cell in shrunken)


@pytest.mark.parametrize("interaction", [0.0, 0.02, 0.3])
def test_shrunken_means_are_at_least_as_near_to_the_truth_as_the_means(interaction):
    for seed in range(5):
        values = table(0.05, seed=seed, interaction=interaction)
        shrunken = [cell.mean for cell in shrunken_means(values, PLACES)]
        assert error(shrunken, interaction) <= error([sum(v) / len(v) for v in values], interaction) * 1.02


def test_an_additive_table_loses_most_of_its_noise():
    values = table(0.05)
    shrunken = [cell.mean for cell in shrunken_means(values, PLACES)]
    assert error(shrunken) < 0.5 * error([sum(v) / len(v) for v in values])


def test_the_best_of_the_shrunken_means_is_less_too_good_than_the_best_of_the_means():
    excess_before = excess_after = 0.0
    best = max(map(truth, PLACES))
    for seed in range(20):
        values = table(0.1, seed=seed)
        excess_before += max(sum(v) / len(v) for v in values) - best
        excess_after += max(cell.mean for cell in shrunken_means(values, PLACES)) - best
    assert excess_before / 20 > 0.03
    assert abs(excess_after) < 0.5 * excess_before


def test_standard_errors_are_of_the_size_of_the_errors():
    values = table(0.05, interaction=0.3)
    shrunken = shrunken_means(values, PLACES)
    claimed = math.sqrt(sum(cell.standard_error**2 for cell in shrunken) / len(shrunken))
    assert claimed == pytest.approx(error([cell.mean for cell in shrunken], 0.3), rel=0.3)


def test_a_noisier_cell_has_the_larger_standard_error():
    values = table(0.02, interaction=0.3)
    values[7] = [truth(PLACES[7], 0.3) - 0.2, truth(PLACES[7], 0.3) + 0.2]
    shrunken = shrunken_means(values, PLACES)
    assert shrunken[7].standard_error == max(cell.standard_error for cell in shrunken)


def test_a_table_with_holes_and_few_cells_keeps_its_means():
    values = [[1.0, 1.1], [2.0, 2.1], [4.0, 4.2]]
    shrunken = shrunken_means(values, [(0, 0), (0, 1), (1, 1)])
    assert [cell.mean for cell in shrunken] == pytest.approx([1.05, 2.05, 4.1])


def test_the_pooled_variance_is_that_within_cells():
    assert pooled_variance([[1.0, 3.0], [10.0, 10.0, 10.0], [5.0]]) == pytest.approx(2.0 / 3)


def test_noise_that_was_never_measured_is_refused():
    with pytest.raises(ValueError, match="measured twice"):
        shrunken_means([[1.0], [2.0]], [(0,), (1,)])


@pytest.mark.parametrize(("values", "levels"), [([[1.0], []], [(0,), (1,)]), ([[1.0, 2.0]], [(0,), (1,)])])
def test_cells_without_measurement_or_place_are_refused(values, levels):
    with pytest.raises(ValueError, match="every cell needs"):
        shrunken_means(values, levels)
