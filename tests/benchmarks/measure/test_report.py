"""What the benchmark makes of its rows: every figure is held against its limit, and nothing is met in part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.measure import cells, claims, comparisons, epochs, metering
from tests.benchmarks.measure.rows import Rows


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    return Rows(tmp_path / "results.jsonl", limit_s=1e6)


def text(part: Any, rows: Rows) -> str:
    return "\n".join(part.report(rows))


def fill_cells(rows: Rows, *, error: float, naive: float = 0.4, num_steps: int = 90) -> None:
    for cell in cells.CELLS:
        for repeat in range(cells.NUM_REPEATS):
            values = {"rate": 100 * (1 + error), "low": 95.0, "high": 105.0, "num_real_steps": num_steps}
            rows.add(cell.part, f"{cell.load} #{repeat}", 30.0, {**values, "naive": 100 * (1 + naive), "truth": 100.0})


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"error": 0.015}, "**met**"),
        ({"error": -0.025}, "**not met**"),
        ({"error": 0.015, "naive": 0.1}, "**not met**"),
        ({"error": 0.015, "num_steps": 101}, "**not met**"),
    ],
)
def test_cells_are_held_to_all_their_limits(rows: Rows, values: dict[str, Any], word: str) -> None:
    fill_cells(rows, **values)
    assert word in text(cells, rows)


def test_cells_that_are_missing_are_not_met(rows: Rows) -> None:
    assert text(cells, rows) == ""
    for repeat in range(cells.NUM_REPEATS):
        values = {"rate": 100.0, "low": 95.0, "high": 105.0, "num_real_steps": 90, "naive": 150.0, "truth": 100.0}
        rows.add("2x2", f"0.1 #{repeat}", 30.0, values)
    assert "1 of 13 cells: **not met**" in text(cells, rows)


@pytest.mark.parametrize(
    ("num_false", "num_true", "word"), [(1, 19, "**met**"), (2, 20, "**not met**"), (0, 18, "**not")]
)
def test_comparisons_are_counted(rows: Rows, num_false: int, num_true: int, word: str) -> None:
    for part, num_gains in (("itself", num_false), ("faster", num_true)):
        for number in range(comparisons.NUM_COMPARISONS[part]):
            rows.add(part, f"#{number}", 60.0, {"is_gain": number < num_gains, "num_rounds": 3})
    assert word in text(comparisons, rows)


@pytest.mark.parametrize(
    ("part", "cost_us", "word"),
    [
        ("metering", 19.0, "**met**"),
        ("metering", 21.0, "**not met**"),
        ("seams", 51.0, "**met**"),
        ("seams", 53.0, "**not met**"),
    ],
)
def test_the_cost_of_the_seams_is_that_of_either_step_and_of_their_region(
    rows: Rows, part: str, cost_us: float, word: str
) -> None:
    for name, cost in (("short", cost_us), ("3 ms", 5.0)):
        fill_costs(rows, part, name, [cost] * metering.NUM_REPEATS)
    assert word in text(metering, rows)


def fill_costs(rows: Rows, part: str, name: str, costs_us: list[float]) -> None:
    for repeat, cost_us in enumerate(costs_us):
        values = {"step_us": 200.0, "cost_us": cost_us, "interval_us": [1, 2], "region_us": 8.0}
        rows.add(part, f"{name} #{repeat}", 20.0, values)


@pytest.mark.parametrize(
    ("costs_us", "word"),
    [([17, 18, 18, 18, 18, 18, 18, 19], "**met**"), ([10, 12, 14, 18, 18, 22, 24, 26], "**not met**")],
)
def test_a_cost_that_may_lie_above_the_limit_is_not_met(rows: Rows, costs_us: list[float], word: str) -> None:
    for name in ("short", "3 ms"):
        fill_costs(rows, "metering", name, costs_us)
    assert word in text(metering, rows)


def test_outliers_do_not_widen_the_interval_of_a_median() -> None:
    quiet = [float(value) for value in range(24)]
    assert metering.median_interval(quiet) == (7.0, 16.0)
    assert metering.median_interval([*quiet[:-3], 1e6, 1e6, 1e6]) == (7.0, 16.0)


@pytest.mark.parametrize(("claimed", "word"), [(2.08, "**met**"), (2.12, "**not met**")])
def test_a_claim_is_held_against_the_median_of_its_pairs(rows: Rows, claimed: float, word: str) -> None:
    for script in ("a/train.py", "b/train.py", "c/train.py"):
        for number, ratio in enumerate((1.9, 2.0, 2.6)):
            values = {"script": script, "run_s": 60.0, "claimed": claimed, "ratio": ratio}
            rows.add("claims", f"{script} #{number}", 120.0, values)
    assert word in text(claims, rows)


@pytest.mark.parametrize(("rate", "word"), [(104.0, "**met**"), (94.0, "**not met**")])
def test_rates_over_epochs_are_held_against_whole_epochs(rows: Rows, rate: float, word: str) -> None:
    for name in epochs.JOBS:
        for repeat in range(epochs.NUM_REPEATS):
            values = {"rate": rate, "steady": 130.0, "restart_s": 0.1, "truth": 100.0}
            rows.add("epochs", f"{name} #{repeat}", 30.0, values)
    assert word in text(epochs, rows)


def test_what_was_measured_is_not_measured_again(rows: Rows, tmp_path: Path) -> None:
    measured: list[str] = []

    def measure(key: str) -> dict[str, Any]:
        measured.append(key)
        return {"value": 1}

    assert rows.fill("part", ["a", "b"], measure, expected_s=1.0)
    again = Rows(tmp_path / "results.jsonl", limit_s=1e6)
    assert again.fill("part", ["a", "b", "c"], measure, expected_s=1.0)
    assert measured == ["a", "b", "c"]


def test_nothing_is_begun_that_would_not_end_in_time(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "results.jsonl", limit_s=10.0)
    assert not rows.fill("part", ["a"], lambda key: {}, expected_s=20.0)
    assert rows.of("part") == []
