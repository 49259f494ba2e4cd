"""The recorded grids that the searches are compared on keep what their README promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.model.grid_file import read_grid
from autotune.runner.replay import ReplayRunner
from autotune.space.grid import enumerate_cells, recorded_space

FOLDER = Path(__file__).parents[2] / "data" / "grids"
FILES = sorted(FOLDER.glob("*.jsonl"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recorded_grid_is_complete_and_large_enough(path):
    grid = read_grid(path)
    assert grid.missing == () and grid.header.repeats >= 2
    assert len(grid.cells) >= 150
    infeasible = [c for c in grid.cells if any(result.outcome.is_infeasible for result in grid.results(c))]
    assert len(infeasible) >= 0.2 * len(grid.cells)
    assert {record.cell for record in grid.records if record.anchor is not None} > {0}
    assert grid.is_feasible(grid.cells[0])
    assert set(enumerate_cells(recorded_space(grid)).cells) == set(grid.cells)
    assert all(ReplayRunner(grid, seed=1).answer(cell).start == "replayed" for cell in grid.cells)


def test_recordings_hold_no_path_of_the_machine():
    for path in FILES:
        first = path.read_text().split("\n", 1)[0]
        assert "/home/" not in first and "/root/" not in first
