"""The rate of jobs that wait for their loader, measured by a trial, against the truth and against a naive figure.

A cell is a number of workers, a prefetch factor and the compute time's share of the loader's period. The job pauses
after its first step, as for a compilation, and a loader that is not held back fills its queue meanwhile.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from autotune.measure.block import Phase
from autotune.measure.window_stopping import WindowRule
from tests.benchmarks.measure.rows import Row, Rows
from tests.benchmarks.measure.trials import said_by_job, trials_of

PERIOD_S = 0.02
"""Of a loader with all its workers: one batch."""
PAUSE_S = 1.2
NUM_REPEATS = 5
"""Every one of every cell with a seed of its own: the seed decides the build times, and 5 draws that all cells share
would be judged 13 times over."""
NUM_TRUTH_STEPS = 600
MAX_REAL_STEPS = 100
"""Steps on real batches, ramp included, that a measurement may take."""
WINDOW = WindowRule(half_width_ratio=0.02, max_window_s=1.6)
"""The finals' precision, in as much time as a hundred steps take with the ramp and with the block that passes the limit
among them."""
EXPECTED_S = 40.0

MAX_MEAN_ERROR, MAX_ERROR, MIN_TIMES_BETTER = 0.02, 0.05, 10.0


@dataclass(frozen=True)
class Cell:
    """One job."""

    num_workers: int
    prefetch_factor: int
    load: float
    """Compute time over the loader's period: below 1 the job waits for its loader."""

    @property
    def part(self) -> str:
        """The part of the benchmark that it belongs to."""
        return "compute" if self.load > 1 else f"{self.num_workers}x{self.prefetch_factor}"

    def arguments(self) -> tuple[str, ...]:
        """Of the job."""
        values = {
            "--workers": self.num_workers,
            "--prefetch": self.prefetch_factor,
            "--batch-s": self.num_workers * PERIOD_S,
            "--compute-s": self.load * PERIOD_S,
            "--pause-s": PAUSE_S,
        }
        return tuple(f"{name}={value}" for name, value in values.items())


SIZES = ((2, 2), (4, 2), (8, 2), (8, 4))
CELLS = [Cell(*size, load) for size in SIZES for load in (0.1, 0.5, 0.9)] + [Cell(4, 2, 1.3)]
PARTS = tuple(dict.fromkeys(cell.part for cell in CELLS))


def run(part: str, rows: Rows) -> bool:
    """Measures what is missing of a part; whether it is complete."""
    return all(_run_cell(cell, rows) for cell in CELLS if cell.part == part)


def _run_cell(cell: Cell, rows: Rows) -> bool:
    keys = [f"{cell.load} #{repeat}" for repeat in range(NUM_REPEATS)]
    if not rows.missing(cell.part, keys) or not rows.has_time(cell.part, EXPECTED_S):
        return not rows.missing(cell.part, keys)
    with trials_of(*cell.arguments()) as trials:

        def measure(key: str) -> Row:
            said = said_by_job(*cell.arguments(), f"--reference={NUM_TRUTH_STEPS}")
            result = trials.run(seed=keys.index(key) + NUM_REPEATS * CELLS.index(cell), window=WINDOW)
            assert result.measurement is not None
            blocks = result.ranks[0].blocks
            real = [block for block in blocks if block.phase in (Phase.RAMP, Phase.WINDOW)]
            return {
                "rate": result.measurement.samples_per_second,
                "low": result.measurement.low,
                "high": result.measurement.high,
                "num_real_steps": sum(block.num_steps for block in real),
                "num_cached_steps": sum(block.num_steps for block in blocks) - sum(block.num_steps for block in real),
                **said,
            }

        return rows.fill(cell.part, keys, measure, expected_s=EXPECTED_S)


@dataclass(frozen=True)
class Errors:
    """How far off a cell is, signed, as medians of its repeats."""

    cell: Cell
    trial: float
    naive: float
    most_steps: int
    coverage: float
    """Share of the trials whose own interval holds the truth."""


def errors(rows: Rows) -> Iterator[Errors]:
    """Of every cell that has all its repeats. The truth is that of all of them together."""
    for cell in CELLS:
        found = [row for row in rows.of(cell.part) if row["key"].startswith(f"{cell.load} ")]
        if len(found) < NUM_REPEATS:
            continue
        truth = statistics.harmonic_mean([row["truth"] for row in found])
        yield Errors(
            cell=cell,
            trial=statistics.median(row["rate"] / truth - 1 for row in found),
            naive=statistics.median(row["naive"] / truth - 1 for row in found),
            most_steps=max(row["num_real_steps"] for row in found),
            coverage=sum(row["low"] <= truth <= row["high"] for row in found) / len(found),
        )


def report(rows: Rows) -> Iterator[str]:
    """Markdown."""
    found = list(errors(rows))
    if not found:
        return
    yield "## Rates against the truth\n"
    yield (
        f"Batches of 8 samples, a loader's period of {1000 * PERIOD_S:.0f} ms with lognormal build times (sigma 0.1), "
        f"a pause of {PAUSE_S} s after the first step. Medians of {NUM_REPEATS} runs; the truth is {NUM_REPEATS} x "
        f"{NUM_TRUTH_STEPS} steps of the script alone, without a pause. *first 50* is the rate of the first 50 steps "
        "of the script alone after the pause. *real steps* are those on real batches, ramp and window together.\n"
    )
    yield "| workers x prefetch | compute / loader period | trial | first 50 steps | real steps | intervals that hold |"
    yield "|---|---|---|---|---|---|"
    for error in found:
        cell = error.cell
        yield (
            f"| {cell.num_workers} x {cell.prefetch_factor} | {cell.load} | {error.trial:+.1%} | {error.naive:+.1%} "
            f"| {error.most_steps} | {error.coverage:.0%} |"
        )
    bound = [error for error in found if error.cell.load < 1]
    if not bound:
        return
    mean = statistics.fmean(abs(error.trial) for error in found)
    worst = max(abs(error.trial) for error in found)
    naive = statistics.fmean(abs(error.naive) for error in bound)
    times = naive / statistics.fmean(abs(error.trial) for error in bound) if mean else math.inf
    most = max(error.most_steps for error in found)
    is_met = mean <= MAX_MEAN_ERROR and worst <= MAX_ERROR and times >= MIN_TIMES_BETTER and most <= MAX_REAL_STEPS
    yield (
        f"\nMean absolute error {mean:.2%} (at most {MAX_MEAN_ERROR:.0%}), worst cell {worst:.2%} (at most "
        f"{MAX_ERROR:.0%}), {times:.0f} times better than the first 50 steps (at least {MIN_TIMES_BETTER:.0f}), "
        f"{most} real steps at most (of {MAX_REAL_STEPS}); {len(found)} of {len(CELLS)} cells: "
        f"**{'met' if is_met and len(found) == len(CELLS) else 'not met'}**.\n"
    )
