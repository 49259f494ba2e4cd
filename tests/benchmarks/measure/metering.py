"""What a trial's meter costs per optimizer step: alternating blocks with and without it, in one process.

Times are CPU time of the one thread that trains: the meter neither waits nor starts threads, and on a shared machine
wall time says more of the neighbours.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotune.measure.stopping import WindowRule
from autotune.model.job import Mode, TrialJob, TrialPaths
from autotune.model.result import RankResult
from autotune.plain import from_plain, to_plain
from autotune.space.natural import natural_settings
from tests.benchmarks.measure.rows import Row, Rows

ROOT = Path(__file__).resolve().parents[3]
JOB = Path(__file__).with_name("metered_job.py")
NUM_PAIRS = 60
NUM_REPEATS = 5
SPINS_S = {"short": 0.0, "3 ms": 0.0027}
"""CPU time that a step takes beside its small model's: one of about 0.3 ms, where the cost shows best, and one of 3."""
MAX_COST_US = 20.0
EXPECTED_S = 60.0
ENDLESS = WindowRule(half_width_ratio=1e-9, min_window_s=1e6, max_window_s=1e6)
PARTS = ("metering",)


def run(rows: Rows) -> bool:
    """Measures what is missing; whether it is complete."""
    keys = [f"{name} #{repeat}" for name in SPINS_S for repeat in range(NUM_REPEATS)]
    return rows.fill("metering", keys, lambda key: _measure(SPINS_S[key.partition(" #")[0]]), expected_s=EXPECTED_S)


def _measure(spin_s: float) -> Row:
    """Probes the job, runs it as a trial that never has enough, and says what a step costs more."""
    with tempfile.TemporaryDirectory() as folder:
        probe, trial = Path(folder, "probe"), Path(folder, "trial")
        _run(probe, spin_s, mode=Mode.PROBE, settings=None, natural=None, facts=None)
        report = from_plain(RankResult, json.loads(TrialPaths(probe).result(0).read_text()))
        assert report.facts is not None
        natural = natural_settings(report.facts)
        output = _run(trial, spin_s, mode=Mode.TRIAL, settings=natural, natural=natural, facts=report.facts)
    said = json.loads(output.splitlines()[-1])
    microseconds = [1e6 * seconds for seconds in said["differences"]]
    quartiles = statistics.quantiles(microseconds, n=4)
    return {
        "step_us": round(1e6 * statistics.median(said["plain"]), 1),
        "cost_us": round(statistics.median(microseconds), 2),
        "quartiles_us": [round(quartiles[0], 2), round(quartiles[2], 2)],
        "seams": said["seams"],
    }


def _run(folder: Path, spin_s: float, **values: Any) -> str:
    paths = TrialPaths(folder)
    paths.results.mkdir(parents=True)
    command = (sys.executable, str(JOB), "--pairs", str(NUM_PAIRS), "--spin-s", str(spin_s))
    limits: dict[str, Any] = {"start_limit_s": 600.0, "total_limit_s": 600.0}
    job = TrialJob(command=command, cwd=str(ROOT), cap_bytes=1 << 40, window=ENDLESS, **limits, **values)
    paths.job.write_text(json.dumps(to_plain(job)))
    environment = {
        **os.environ,
        "AUTOTUNE_TRIAL": str(folder),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "autotune" / "trial" / "inject"), str(ROOT)]),
    }
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def report(rows: Rows) -> Iterator[str]:
    """Markdown."""
    found = {name: [row for row in rows.of("metering") if row["key"].startswith(f"{name} ")] for name in SPINS_S}
    if not any(found.values()):
        return
    yield "## Cost of the meter\n"
    yield (
        f"{NUM_PAIRS} pairs of blocks of 40 steps, with the meter and without, alternating in one process; medians of "
        f"{NUM_REPEATS} processes.\n"
    )
    yield "| step | with the meter | quartiles of the pairs |"
    yield "|---|---|---|"
    for several in found.values():
        if several:
            step_us = statistics.median(row["step_us"] for row in several)
            low, high = (statistics.median(row["quartiles_us"][end] for row in several) for end in (0, 1))
            yield f"| {step_us:.0f} us | {_cost_us(several):+.1f} us | {low:+.1f} to {high:+.1f} us |"
    long = found["3 ms"]
    if long:
        is_met = len(long) == NUM_REPEATS and _cost_us(long) <= MAX_COST_US
        yield f"\nAt most {MAX_COST_US:.0f} us on a step of about 3 ms: **{'met' if is_met else 'not met'}**.\n"


def _cost_us(found: list[Row]) -> float:
    return statistics.median(row["cost_us"] for row in found)
