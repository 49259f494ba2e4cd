"""A recorded grid, as plain data: real measurements of all settings of a small space.

`autotune record` makes a recording, and `autotune.lab.replay.ReplayRunner` answers from a recording.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from autotune.errors import NoFeasibleSettingsError, SearchSpaceError
from autotune.measure.block import Block, Phase, rate_samples_per_second
from autotune.measure.shrinkage import shrunken_means
from autotune.model.checks import check_figures
from autotune.model.facts import ScriptFacts
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.settings import Settings

SCHEMA = 1
WITHIN_RATIO = 0.02
"""Largest regret of a cell as fast as the best, unless the noise of the cell is larger."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GridHeader:
    """The part of a recording common to all cells; a resume refuses another header."""

    schema: int = SCHEMA
    study: str
    command: tuple[str, ...]
    """The command as typed, with the secrets masked."""
    fingerprint: Mapping[str, Any]
    """Digests of script and arguments, the machine, versions: equal in a resume, so that cells are comparable."""
    memory_cap: str | None
    """The user's words; None = the default share of the free memory."""
    memory_cap_bytes: int
    usable_cpus: float
    device: str
    """Type of the training device: `cpu` or `cuda`."""
    effective_batch: str
    asked: tuple[tuple[str, str], ...]
    """Ranges and fixed values, in the user's words."""
    repeats: int
    """Rounds over all cells, at least 1."""
    window_s: float | None
    """Longest measuring window in seconds; None = as in a search."""
    seed: int
    """Seed of the order within the rounds."""
    start: str = "fresh"
    """`fresh`: a process per measurement. `live`: a process for many cells, where settings can be switched. Each result
    has a `start` too."""
    natural: Settings
    """The script's own settings."""
    space: Mapping[str, Any]
    """The `SearchSpace` of the recording in plain form."""
    facts: ScriptFacts
    """Facts of the probe."""
    cells: tuple[Mapping[str, Any], ...]
    """Differences of each cell from the script's own settings; the first cell has none."""
    dropped: tuple[tuple[Mapping[str, Any], str], ...]
    """Illegal combinations, as differences, each with the reason."""
    autotune: str
    """Version of autotune, with the commit in a checkout."""
    recorded_at: str
    """Beginning of the recording, ISO 8601 in UTC."""

    def __post_init__(self) -> None:
        """Refuses the headers of other files."""
        if self.schema != SCHEMA:
            raise ValueError(f"schema {self.schema!r} is not {SCHEMA}")
        if self.repeats < 1 or self.memory_cap_bytes < 1 or not self.cells:
            raise ValueError("a recording has at least 1 repeat, a cap and a cell")
        if len(set(self.settings)) != len(self.cells):
            raise ValueError("two cells have the same settings")

    @property
    def settings(self) -> tuple[Settings, ...]:
        """Canonical settings of the cells, in their order."""
        own = self.natural.canonical(device_is_cpu=self.device == "cpu").to_dict()
        return tuple(Settings.from_dict({**own, **changes}) for changes in self.cells)


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockSummary:
    """The steadiness of one trial's window, in place of the raw blocks."""

    num_blocks: int
    rate_deviation_ratio: float
    """Standard deviation of the blocks' rates, relative to the rate of the window."""
    first_half_samples_per_second: float
    second_half_samples_per_second: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CellRecord:
    """One measurement of one cell."""

    cell: int
    """Position among the cells of the header."""
    round: int
    """Round over all cells, from 0."""
    anchor: int | None = None
    """Turn of the anchors, from 0; None for the cell's own turn."""
    started_at: str
    """ISO 8601 in UTC."""
    load: float | None = None
    """The machine's load average over the minute before; None = unknown."""
    result: TrialResult
    """Result without the log and the raw blocks."""
    blocks: tuple[BlockSummary, ...] = ()
    """One summary per measuring rank."""

    def __post_init__(self) -> None:
        """Refuses impossible positions."""
        check_figures(self)


def summarize_blocks(blocks: Sequence[Block]) -> BlockSummary | None:
    """The steadiness of the window among the blocks; None for fewer than two blocks in the window."""
    window = [block for block in blocks if block.phase is Phase.WINDOW]
    if len(window) < 2:
        return None
    rate = rate_samples_per_second(window)
    variance = sum((b.num_samples / b.duration_s - rate) ** 2 for b in window) / (len(window) - 1)
    half = len(window) // 2
    return BlockSummary(
        num_blocks=len(window),
        rate_deviation_ratio=math.sqrt(variance) / rate,
        first_half_samples_per_second=rate_samples_per_second(window[:half]),
        second_half_samples_per_second=rate_samples_per_second(window[half:]),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class CellTruth:
    """The true rate of a feasible cell, estimated from the whole grid."""

    samples_per_second: float
    """Shrunken mean of the cell."""
    noise_ratio: float
    """Standard error of the shrunken mean, relative to the mean."""


class Grid:
    """A recording, with cells looked up by settings in any equivalent form.

    Args:
        header: The part common to all cells.
        records: Measurements, in the order of time.
    """

    def __init__(self, header: GridHeader, records: Sequence[CellRecord]) -> None:
        self.header = header
        self.records = tuple(records)
        self._results: dict[Settings, list[TrialResult]] = {settings: [] for settings in header.settings}
        for record in self.records:
            self._results[self.cells[record.cell]].append(record.result)

    @cached_property
    def cells(self) -> tuple[Settings, ...]:
        """Canonical settings of all cells; the first are the script's own."""
        return self.header.settings

    @cached_property
    def missing(self) -> tuple[Settings, ...]:
        """Cells measured in fewer rounds than planned, anchors not counted."""
        turns = Counter(record.cell for record in self.records if record.anchor is None)
        return tuple(self.cells[cell] for cell in range(len(self.cells)) if turns[cell] < self.header.repeats)

    @property
    def num_by_start(self) -> dict[str, int]:
        """Measurements by the origin of their process, the most frequent first; anchors are not counted."""
        turns = Counter(record.result.start.value for record in self.records if record.anchor is None)
        return dict(turns.most_common())

    def results(self, settings: Settings) -> tuple[TrialResult, ...]:
        """All measurements of one cell, in the order of time.

        Raises:
            SearchSpaceError: The recording has no cell with these settings. Nothing is interpolated.
        """
        return tuple(self._results[self._cell(settings)])

    def is_feasible(self, settings: Settings) -> bool:
        """Whether more than half of a cell's measurements were complete and under the cap."""
        results = self.results(settings)
        return 2 * sum(result.outcome is Outcome.OK for result in results) > len(results)

    @cached_property
    def feasible(self) -> tuple[Settings, ...]:
        """Feasible cells, the truly fastest first."""
        return tuple(sorted(self._truths, key=lambda cell: -self._truths[cell].samples_per_second))

    @property
    def feasible_share(self) -> float:
        """Share of the feasible cells, 0 to 1."""
        return len(self._truths) / len(self.cells)

    def truth(self, settings: Settings) -> CellTruth | None:
        """The true rate of a cell; None for an infeasible cell."""
        return self._truths.get(self._cell(settings))

    @property
    def best(self) -> Settings:
        """The truly fastest feasible cell.

        Raises:
            NoFeasibleSettingsError: No cell is feasible.
        """
        if not self._truths:
            message = f"No cell of the grid of {self.header.study} is feasible."
            raise NoFeasibleSettingsError(message, "Record it under a larger --memory-cap.")
        return self.feasible[0]

    def regret(self, settings: Settings) -> float:
        """Loss of a cell against the best cell, as a share of the best true rate, 0 to 1; 1 for an infeasible cell."""
        truth, best = self.truth(settings), self._truths[self.best]
        return 1.0 if truth is None else 1 - truth.samples_per_second / best.samples_per_second

    def is_within(self, settings: Settings, ratio: float = WITHIN_RATIO) -> bool:
        """Whether a cell is as good as the best: the regret is at most `ratio`, or at most the cell's own noise."""
        truth = self.truth(settings)
        return truth is not None and self.regret(settings) <= max(ratio, truth.noise_ratio)

    @property
    def drift_ratio(self) -> float | None:
        """Largest spread of one anchor's rates over the recording: the highest over the lowest, less 1.

        The spread includes the noise of single trials. None before the second measurement of an anchor.
        """
        rates: dict[int, list[float]] = {}
        for record in self.records:
            if record.anchor is not None and record.result.measurement is not None:
                rates.setdefault(record.cell, []).append(record.result.measurement.samples_per_second)
        return max((max(found) / min(found) - 1 for found in rates.values() if len(found) > 1), default=None)

    @cached_property
    def residuals(self) -> tuple[float, ...]:
        """Noise of single measurements around their cell's mean, as logarithms of ratios, over all feasible cells."""
        found: list[float] = []
        for rates in map(self.log_rates, self._truths):
            if len(rates) > 1:
                mean = sum(rates) / len(rates)
                # The mean lies nearer to these values than the truth does.
                widening = math.sqrt(len(rates) / (len(rates) - 1))
                found.extend(widening * (rate - mean) for rate in rates)
        return tuple(found)

    def log_rates(self, settings: Settings) -> tuple[float, ...]:
        """Logarithms of a cell's measured rates."""
        results = self.results(settings)
        return tuple(
            math.log(r.measurement.samples_per_second) for r in results if r.outcome is Outcome.OK and r.measurement
        )

    def under(self, cap_bytes: int) -> Grid:
        """The same recording under a smaller memory cap.

        The peak of a cell measured live may hold memory that other cells left in the process. A recording made with
        `--start fresh` has no such peaks.

        Raises:
            ValueError: The cap is larger than the cap of the recording, which ended some cells.
        """
        if cap_bytes > self.header.memory_cap_bytes:
            raise ValueError(f"the grid was recorded under {self.header.memory_cap_bytes} bytes, not {cap_bytes}")
        records = [replace(record, result=_judged_again(record.result, cap_bytes)) for record in self.records]
        return Grid(replace(self.header, memory_cap_bytes=cap_bytes), records)

    def _cell(self, settings: Settings) -> Settings:
        cell = settings.canonical(device_is_cpu=self.header.device == "cpu")
        if cell not in self._results:
            changes = ", ".join(f"{name}={here}" for name, (here, _) in cell.differences(self.cells[0]).items())
            raise SearchSpaceError(
                f"The grid of {self.header.study} has no cell with {changes or 'the settings of the script'}.",
                "Search the space of the recording, no more.",
            )
        return cell

    @cached_property
    def _truths(self) -> dict[Settings, CellTruth]:
        cells = [cell for cell in self.cells if self.is_feasible(cell)]
        if not cells:
            return {}
        plain = [cell.to_dict() for cell in cells]
        levels = [tuple(map(str, values.values())) for values in plain]
        shrunken = shrunken_means([self.log_rates(cell) for cell in cells], levels)
        return {
            cell: CellTruth(samples_per_second=math.exp(value.mean), noise_ratio=value.standard_error)
            for cell, value in zip(cells, shrunken, strict=True)
        }


def _judged_again(result: TrialResult, cap_bytes: int) -> TrialResult:
    peak = result.peak_memory_bytes
    if result.outcome is not Outcome.OK or peak is None or peak <= cap_bytes:
        return result
    return replace(result, outcome=Outcome.OVER_CAP, reason="It held more than this cap.", measurement=None)
