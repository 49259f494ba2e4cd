"""The recorded grids that searches are compared on keep what their README promises; what does not is found out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.lab.grid import Grid
from autotune.lab.grid_file import read_grid
from autotune.lab.grid_space import enumerate_cells, recorded_space
from autotune.lab.replay import ReplayRunner
from autotune.protocol.codec import to_plain
from tests.benchmarks.search.grids import capped
from tests.unit import grids

FOLDER = Path(__file__).parents[2] / "data" / "grids"
LEAST_CELLS = {"cpu": 150, "cuda": 60}
"""By device: a GPU's time is dear."""
LEAST_INFEASIBLE_SHARE = 0.2


def unkept(grid: Grid, *, least_cells: int | None = None) -> list[str]:
    """What a grid does not keep of the promises, a word each."""
    is_of_cpu = grid.header.device == "cpu"
    least_cells = LEAST_CELLS[grid.header.device] if least_cells is None else least_cells
    turns = Counter(record.cell for record in grid.records if record.anchor is None)
    infeasible = [c for c in grid.cells if any(result.outcome.is_infeasible for result in grid.results(c))]
    kept = {
        "complete": grid.missing == (),
        "repeated": sum(turns[cell] >= 2 for cell in turns) >= min(least_cells, len(turns)) or not is_of_cpu,
        "large": len(grid.cells) >= least_cells,
        "infeasible": len(infeasible) >= LEAST_INFEASIBLE_SHARE * len(grid.cells) or not is_of_cpu,
        "anchored": {record.cell for record in grid.records if record.anchor is not None} > {0},
        "baseline": grid.is_feasible(grid.cells[0]),
        "space": set(enumerate_cells(recorded_space(grid)).cells) == set(grid.cells),
        "places": not any(text.startswith("/") for text in strings(to_plain(grid.header))),
    }
    return [word for word, is_kept in kept.items() if not is_kept]


def strings(value: object) -> list[str]:
    """All texts in plain data."""
    if isinstance(value, dict):
        return [text for part in (*value, *value.values()) for text in strings(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in strings(part)]
    return [value] if isinstance(value, str) else []


def small_grid(*, without: int = 0, **changes: object) -> Grid:
    """The small recorded grid of the other tests, with its anchors."""
    grid = grids.grid()
    anchors = [replace(record, anchor=number) for number, record in enumerate(grid.records[:2])]
    return Grid(header=replace(grid.header, **changes), records=(*anchors, *grid.records[without:]))


def test_every_grid_that_is_kept_here_keeps_the_promises():
    recorded = {path.name: capped(path.stem, read_grid(path)) for path in sorted(FOLDER.glob("*.jsonl"))}
    assert {name: unkept(grid) for name, grid in recorded.items() if unkept(grid)} == {}
    for grid in recorded.values():
        assert all(ReplayRunner(grid, seed=1).answer(cell).start == "replayed" for cell in grid.cells)


@pytest.mark.parametrize(
    ("grid", "least_cells", "words"),
    [
        (small_grid(), 8, []),
        (small_grid(), LEAST_CELLS["cpu"], ["large"]),
        (small_grid(without=1), 8, ["complete", "repeated"]),
        (small_grid(command=("/somewhere/train.py",)), 8, ["places"]),
    ],
    ids=["all kept", "few cells", "a measurement missing", "a place of one machine"],
)
def test_a_promise_that_a_grid_does_not_keep_is_found_out(grid, least_cells, words):
    assert unkept(grid, least_cells=least_cells) == words
