"""Answers from a recorded grid: real outcomes, seeded noise around the truth, and no cell that was not recorded."""

from __future__ import annotations

import math
import re
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

import autotune.lab.replay as documented
from autotune.errors import SearchSpaceError
from autotune.lab.function_search import search_function
from autotune.lab.grid import Grid
from autotune.lab.grid_file import read_grid
from autotune.lab.grid_space import recorded_space
from autotune.lab.replay import ReplayRunner
from autotune.model.outcome import Outcome
from tests.unit.grids import CAP_BYTES, grid, ok, over_cap, record
from tests.unit.runner.samples import job

GRID = grid(repeats=2, deviation=0.03)


def rates(runner, settings, num):
    return [runner.answer(settings).measurement.samples_per_second for _ in range(num)]


def test_an_answer_is_a_recorded_trial_with_other_noise():
    result = ReplayRunner(GRID).answer(GRID.best)
    assert (result.outcome, result.start) == (Outcome.OK, "replayed")
    recorded = GRID.results(GRID.best)[0]
    assert result.peak_memory_bytes == recorded.peak_memory_bytes
    assert result.measurement.compute_samples_per_second == recorded.measurement.compute_samples_per_second
    ratio = result.measurement.high / result.measurement.samples_per_second
    assert ratio == pytest.approx(recorded.measurement.high / recorded.measurement.samples_per_second)


def test_answers_scatter_around_the_truth_by_the_recordings_noise():
    truth = GRID.truth(GRID.best)
    logs = [math.log(rate / truth.samples_per_second) for rate in rates(ReplayRunner(GRID), GRID.best, 400)]
    assert len(set(logs)) > 2  # two repeats alone would give two answers
    assert abs(sum(logs) / 400) < 0.01
    spread = math.sqrt(sum(log * log for log in logs) / 400)
    assert 0.01 < spread < 0.06


def test_the_same_seed_gives_the_same_answers_whatever_was_asked_between():
    first, second = ReplayRunner(GRID, seed=4), ReplayRunner(GRID, seed=4)
    second.answer(GRID.feasible[1])
    assert rates(first, GRID.best, 5) == rates(second, GRID.best, 5)
    assert rates(first, GRID.best, 5) != rates(ReplayRunner(GRID, seed=5), GRID.best, 5)


def test_cells_over_the_cap_are_over_it_again():
    result = ReplayRunner(GRID).answer(replace(GRID.best, num_workers=4))
    assert (result.outcome, result.measurement) == (Outcome.OVER_CAP, None)
    assert result.peak_memory_bytes > CAP_BYTES


def test_a_cell_on_the_border_ends_both_ways():
    results = [ok(100.0), over_cap()]
    records = [replace(r, result=results[r.round]) if r.cell == 1 else r for r in GRID.records]
    runner = ReplayRunner(Grid(GRID.header, records))
    outcomes = {runner.answer(GRID.cells[1]).outcome for _ in range(20)}
    assert outcomes == {Outcome.OK, Outcome.OVER_CAP}


def test_settings_that_the_recording_lacks_raise_and_are_never_interpolated():
    with pytest.raises(SearchSpaceError, match="num_workers=3"):
        ReplayRunner(GRID).answer(replace(GRID.best, num_workers=3))


def test_a_recording_that_is_not_complete_is_refused():
    with pytest.raises(ValueError, match="1 of 8"):
        ReplayRunner(Grid(GRID.header, GRID.records[:-1]))


def test_a_job_under_another_cap_is_refused():
    with pytest.raises(ValueError, match="cap"):
        ReplayRunner(GRID).start(job(settings=GRID.best, script_settings=GRID.best, cap_bytes=CAP_BYTES + 1))


def test_a_smaller_cap_is_another_grid():
    under = GRID.under(250 << 20)
    settings = replace(GRID.best, num_workers=2)
    result = ReplayRunner(under).start(job(settings=settings, script_settings=settings, cap_bytes=250 << 20)).result()
    assert result.outcome is Outcome.OVER_CAP


def test_an_anchors_measurements_are_answers_too():
    extra = record(0, ok(500.0), anchor=1)
    found = Grid(GRID.header, [*GRID.records, extra])
    assert extra.result in found.results(found.cells[0])


def test_the_documented_lines_search_a_recorded_grid(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[3])
    lines = "".join(re.findall(r"^    .*\n", documented.__doc__, flags=re.MULTILINE)).replace("=40)", "=12)")
    names = {
        "Path": Path,
        "ReplayRunner": ReplayRunner,
        "read_grid": read_grid,
        "recorded_space": recorded_space,
        "search_function": search_function,
    }
    exec(compile(textwrap.dedent(lines), documented.__file__, "exec"), names)
    assert len(names["found"].trials) == 12
    assert names["found"].best.settings in names["grid"].feasible
