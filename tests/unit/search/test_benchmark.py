"""The benchmark of searches: what it counts, on a recorded grid as on a simulated job."""

from __future__ import annotations

import pytest

from autotune.lab.grid_file import create_grid, open_grid
from tests.benchmarks.search.grids import recorded_grids
from tests.benchmarks.search.ours import autotune
from tests.benchmarks.search.problem import Run
from tests.benchmarks.search.rivals import rival
from tests.benchmarks.search.tables import COLUMNS, strategy_table
from tests.unit.grids import grid


@pytest.fixture
def job(tmp_path):
    recorded = grid()
    create_grid(tmp_path / "small.jsonl", recorded.header)
    with open_grid(tmp_path / "small.jsonl") as file:
        for record in recorded.records:
            file.append(record)
    (job,) = recorded_grids(tmp_path)
    return job


@pytest.mark.parametrize("strategy", [autotune, rival("random")], ids=["ours", "random"])
def test_a_whole_recorded_grid_can_be_searched_by_every_strategy(job, strategy):
    run = strategy(job, 1, len(job.grid.cells))
    assert run.num_trials >= len(job.grid.feasible)
    assert run.tried_at is not None
    assert run.regrets[0] == pytest.approx(job.regret(job.space.script_settings))
    assert run.regrets[-1] <= 0.02


def run_of(**changes) -> Run:
    values = {"problem": "job", "seed": 1, "tried_at": 3, "named_at": 5, "regrets": (0.5,) * 4 + (0.01,) * 16}
    return Run(**{**values, "num_infeasible": 1, "cpu_s": 1.0, **changes})


def test_a_table_tells_when_the_best_was_tried_and_when_it_was_named():
    never = run_of(tried_at=None, named_at=None, regrets=(0.5,) * 20)
    row = strategy_table({"ours": [run_of(), run_of(), never]}).splitlines()[-1]
    cells = dict(zip(COLUMNS, [cell.strip() for cell in row.split("|")[2:-1]], strict=True))
    assert cells["within 2 % is tried, median trial"] == "3"
    assert cells["and named, median trial"] == "5"
    assert cells["95 % of searches"] == "more"
    assert cells["tried by 28"] == "67%"
    assert cells["named by 14"] == "67%"
    assert cells["infeasible trials"] == "5.0%"
