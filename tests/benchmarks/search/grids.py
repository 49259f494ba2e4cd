"""Recorded grids of real measurements as problems, noise drawn anew for every seed."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from autotune.lab.grid import Grid
from autotune.lab.grid_file import read_grid
from autotune.lab.grid_space import recorded_space
from autotune.lab.replay import ReplayRunner
from autotune.model.result import TrialResult
from autotune.search.plan_state import TRAINED_BYTES
from autotune.settings import Settings
from autotune.study.estimate import fixed_bytes
from autotune.study.target import OUTSIDE_ALLOCATOR_BYTES
from autotune.units import MIB

GRID_FOLDER = Path(__file__).parents[2] / "data" / "grids"
CAP_MIB = {"jpeg_cnn-cpu2": 480, "char_gpt-cpu2": 550, "mlp-cpu2": 457}
"""Under which recordings are searched that were made with memory to spare: about a quarter of their cells needs more.
The others are searched under the cap that they were recorded under."""


class RecordedJob:
    """One recorded grid."""

    def __init__(self, name: str, grid: Grid) -> None:
        self.name = name
        self.grid = grid
        self.space = recorded_space(grid)
        self.usable_cpus = grid.header.usable_cpus
        self.cap_bytes = grid.header.memory_cap_bytes
        self._runners: dict[int, ReplayRunner] = {}

    @cached_property
    def fixed_bytes(self) -> float:
        return float(TRAINED_BYTES * self.grid.header.facts.num_parameters)

    @cached_property
    def fixed_estimate_bytes(self) -> float | None:
        return fixed_bytes(self.grid.header.facts, OUTSIDE_ALLOCATOR_BYTES)

    def run(self, settings: Settings, seed: int, incumbent: float | None) -> TrialResult:
        """What a trial of the cell reports; recordings know no racing."""
        del incumbent
        if seed not in self._runners:
            self._runners[seed] = ReplayRunner(self.grid, seed=seed)
        return self._runners[seed].answer(settings)

    def regret(self, settings: Settings) -> float:
        return self.grid.regret(settings)

    def is_found(self, settings: Settings) -> bool:
        """Within two percent of the best, or within the cell's own noise."""
        return self.grid.is_within(settings)


def recorded_grids(folder: Path) -> list[RecordedJob]:
    """The complete recordings of a folder, by name."""
    grids = {path.stem: read_grid(path) for path in sorted(folder.glob("*.jsonl"))}
    return [RecordedJob(name, capped(name, grid)) for name, grid in grids.items() if not grid.missing]


def capped(name: str, grid: Grid) -> Grid:
    """A recording under the cap that it is searched under."""
    return grid.under(CAP_MIB[name] * MIB) if name in CAP_MIB else grid
