"""Whole searches over recorded grids beside a simulated neighbour; the config, alone afterwards, is never slower."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.lab.grid_file import read_grid
from autotune.lab.replay import ReplayRunner
from autotune.model.surroundings import Surroundings
from autotune.settings import OmpWaitPolicy
from autotune.study.searching import search

from .test_handed_in_runners import Opened, grid_spec, spec, stored  # noqa: F401 - a fixture

GRIDS = Path(__file__).parents[2] / "data" / "grids"
BESIDE = {(2, OmpWaitPolicy.DEFAULT): 0.15, (2, OmpWaitPolicy.PASSIVE): 0.3, (1, OmpWaitPolicy.DEFAULT): 0.7}
"""Share of the quiet rate beside a program on one of two cores, by threads and wait policy: a team of two waits for its
slower thread at the end of every product."""


class Neighbour(ReplayRunner):
    """Answers from a grid, beside a neighbour during the runs of `is_loaded`."""

    is_loaded = staticmethod(lambda run: True)
    num_runs = 0

    def answer(self, settings):
        result, self.num_runs = super().answer(settings), self.num_runs + 1
        is_loaded = self.is_loaded(self.num_runs)
        found = Surroundings(window_s=8.0, usable_cpus=2.0, foreign_cpus=1.0 if is_loaded else 0.0)
        measured = result.measurement
        if measured is not None and is_loaded:
            factor = BESIDE.get((settings.intra_op_threads, settings.omp_wait_policy), 0.7)
            rates = {name: factor * getattr(measured, name) for name in ("samples_per_second", "low", "high")}
            ceiling = measured.compute_samples_per_second
            rates["compute_samples_per_second"] = factor * ceiling if ceiling is not None else None
            result = replace(result, measurement=replace(measured, **rates))
        return replace(result, surroundings=found)


@pytest.mark.parametrize("name", ["jpeg_cnn-cpu2", pytest.param("mlp-cpu2", marks=pytest.mark.slow)])
def test_the_config_of_a_search_beside_a_neighbour_is_never_slower_alone(spec, name):  # noqa: F811
    grid = read_grid(GRIDS / f"{name}.jsonl")
    runner = Neighbour(grid, seed=3)
    asked = grid_spec(spec, grid, max_trials=10, allow_batchnorm_accumulation=True)
    result = search(asked, on_event=lambda event: None, open_runner=Opened(runner))
    own = stored(asked)[0][0].settings
    assert own.intra_op_threads == 2
    rates = [grid.truth(settings).samples_per_second for settings in (result.best.settings, own)]
    assert rates[0] >= 0.98 * rates[1]
    if result.best.settings != own:
        assert "of 2 cores busy" in result.beside_load
        assert result.best.settings.intra_op_threads == 2


def test_without_the_neighbour_the_same_search_publishes_fewer_threads(spec):  # noqa: F811
    """One thread is worth 1.6 times two, beside workers that decode: a gain of its own, which must not be lost."""
    grid = read_grid(GRIDS / "jpeg_cnn-cpu2.jsonl")
    runner = Neighbour(grid, seed=3)
    runner.is_loaded = lambda run: False
    asked = grid_spec(spec, grid, max_trials=10, allow_batchnorm_accumulation=True)
    result = search(asked, on_event=lambda event: None, open_runner=Opened(runner))
    assert result.best.settings.intra_op_threads == 1
    assert result.beside_load == ""
