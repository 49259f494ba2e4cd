"""A runner that answers from a recorded grid: searches are compared on real measurements without running anything.

    grid = read_grid(Path("tests/data/grids/jpeg_cnn-cpu2.jsonl"))        # autotune.lab.grid_file
    runner = ReplayRunner(grid, seed=7)
    runner.answer(grid.best)                     # a TrialResult with noise; `start(job)` is the same for jobs
    grid.regret(grid.cells[0]), grid.is_within(grid.best), grid.feasible_share            # by its truth, without noise

A whole search of it, our own or with `sampler=RandomSampler(seed=7)` one of Optuna's under the same baseline, space,
constraints, noise and budget:

    found = search_function(runner.answer, recorded_space(grid), cap_bytes=grid.header.memory_cap_bytes, max_trials=40)
    grid.is_within(found.best.settings)          # 2 % of the best, or the cell's own noise

(`autotune.lab.function_search.search_function`, `autotune.lab.grid_space.recorded_space`.) What the recording lacks
raises SearchSpaceError; nothing is interpolated. `grid.under(cap_bytes)` is the same recording under a smaller cap.
Truth is `grid.truth(settings)`, a shrunken mean. Trials are never raced out, since all were measured in full.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace

from autotune.lab.function_runner import FinishedRun, imagined_probe
from autotune.lab.grid import Grid
from autotune.model.outcome import Outcome
from autotune.model.result import Measurement, StartKind, TrialResult
from autotune.protocol.job import Mode, TrialJob
from autotune.settings import Settings

OWN_NOISE_SHARE = 0.5
"""How often an answer's noise is one of the cell's own deviations; otherwise one of all cells'. Two repeats alone would
give every cell two answers."""


class ReplayRunner:
    """Answers from a grid at once.

    The n-th answer for a cell depends only on the seed, the cell and n: two searches with one seed see the same figures
    wherever they measure the same.

    Args:
        grid: The recording; every cell must have been measured.
        seed: Of the noise.

    Raises:
        ValueError: Some cells were not measured as often as the recording asks.
    """

    def __init__(self, grid: Grid, *, seed: int = 0) -> None:
        if grid.missing:
            raise ValueError(f"{len(grid.missing)} of {len(grid.cells)} cells of the recording are not complete")
        self._grid = grid
        self._seed = seed
        self._num_asked: Counter[Settings] = Counter()

    def start(self, job: TrialJob) -> FinishedRun:
        """Answers; the run is over when this returns.

        Raises:
            SearchSpaceError: The recording has no cell with these settings.
            ValueError: The job's cap is not the recording's.
        """
        if job.mode in (Mode.PROBE, Mode.SPLIT_PROBE):
            return FinishedRun(imagined_probe(job, self._grid.header.facts), None)
        if job.cap_bytes != self._grid.header.memory_cap_bytes:
            raise ValueError(f"the grid is of a cap of {self._grid.header.memory_cap_bytes} bytes, not {job.cap_bytes}")
        assert job.request.settings is not None
        return FinishedRun(None, self.answer(job.request.settings))

    def close(self) -> None:
        """Does nothing: no process is kept for later runs."""

    def answer(self, settings: Settings) -> TrialResult:
        """What a trial of these settings would have reported.

        Raises:
            SearchSpaceError: The recording has no cell with these settings.
        """
        results = self._grid.results(settings)
        cell = settings.canonical(device_is_cpu=self._grid.header.device == "cpu")
        chance = random.Random(f"{self._seed} {self._grid.cells.index(cell)} {self._num_asked[cell]}")
        self._num_asked[cell] += 1
        result = replace(chance.choice(results), start=StartKind.REPLAYED)
        truth = self._grid.truth(cell)
        if result.outcome is not Outcome.OK or result.measurement is None or truth is None:
            return result
        own = [rate - math.log(truth.samples_per_second) for rate in self._grid.log_rates(cell)]
        noise = chance.choice(own if chance.random() < OWN_NOISE_SHARE else self._grid.residuals)
        return replace(result, measurement=_at(result.measurement, truth.samples_per_second * math.exp(noise)))


def _at(measurement: Measurement, rate: float) -> Measurement:
    """The measurement moved to another rate; what was measured without the loader stays."""
    ratio = rate / measurement.samples_per_second
    return replace(measurement, samples_per_second=rate, low=measurement.low * ratio, high=measurement.high * ratio)
