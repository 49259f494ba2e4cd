"""Forked trials against the script alone, for steps of half a millisecond to ten.

What the meter and the seams cost is a share of the step, so it shows in the shortest. The script alone and a forked
trial take turns in fresh processes, so that what drifts is in both alike. By default on a GPU, where there is one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

import torch

from autotune.measure.window_stopping import WindowRule
from tests.benchmarks.measure.rows import Row, Rows
from tests.benchmarks.measure.trials import STEPS_JOB, said_by_job, trials_of

NUM_TURNS = 5
WINDOW_S = 5.0
WINDOW = WindowRule(half_width_ratio=1e-4, min_window_s=WINDOW_S, max_window_s=WINDOW_S)
EXPECTED_S = 30.0
MAX_ERROR = 0.01

SIZES: dict[str, dict[str, tuple[int, int, int]]] = {
    "cuda": {"step-0.5ms": (64, 1, 8), "step-1.4ms": (64, 4, 8), "step-10ms": (4096, 8, 512)},
    "cpu": {"step-0.5ms": (128, 4, 32), "step-1.4ms": (256, 5, 32), "step-10ms": (1024, 4, 16)},
}
"""Width, depth and rows of the job, by the name of its part: on an H100 and on one core they take about so long."""
PARTS = tuple(SIZES["cuda"])


def run(part: str, rows: Rows) -> bool:
    """Measures the missing turns of a part; says whether the part is complete."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    width, depth, num_rows = SIZES[device][part]
    arguments = (f"--device={device}", f"--width={width}", f"--depth={depth}", f"--rows={num_rows}")
    keys = [f"{device} #{turn}" for turn in range(NUM_TURNS)]
    if not rows.missing(part, keys) or not rows.has_time(part, EXPECTED_S):
        return not rows.missing(part, keys)
    with trials_of(*arguments, job=STEPS_JOB, device=device, is_forked=True) as trials:

        def measure(key: str) -> Row:
            said = said_by_job(*arguments, f"--reference={WINDOW_S}", job=STEPS_JOB)
            result = trials.run(seed=keys.index(key), window=WINDOW)
            assert result.measurement is not None
            return {"start": result.start, "rate": result.measurement.samples_per_second, **said}

        return rows.fill(part, keys, measure, expected_s=EXPECTED_S)


def report(rows: Rows) -> Iterator[str]:
    """Gives the table in Markdown, a line per device and size."""
    lines = [line for part in PARTS for line in _lines(rows.of(part))]
    if not lines:
        return
    yield "## Forked trials against the script alone\n"
    yield f"Up to {NUM_TURNS} turns of the script alone and a forked trial, {WINDOW_S:g} s each. The error is that of"
    yield "the trial's rate, as the median over the turns; in brackets the smallest and the largest.\n"
    yield "| device | step alone | trials | error of the trial |"
    yield "|---|---:|---|---:|"
    yield from lines
    yield ""


def _lines(found: list[Row]) -> Iterator[str]:
    for device in SIZES:
        of_device = [row for row in found if row["key"].startswith(f"{device} ")]
        if not of_device:
            continue
        step_ms = statistics.median(1e3 * row["batch_size"] / row["truth"] for row in of_device)
        errors = [row["rate"] / row["truth"] - 1 for row in of_device]
        error = statistics.median(errors)
        verdict = "" if math.fabs(error) <= MAX_ERROR else f", more than {MAX_ERROR:.0%}"
        starts = ", ".join(sorted({row["start"] for row in of_device}))
        spread = f"[{min(errors):+.1%}, {max(errors):+.1%}]"
        yield f"| {device} | {step_ms:.2f} ms | {starts} | {error:+.2%} {spread}{verdict} |"
