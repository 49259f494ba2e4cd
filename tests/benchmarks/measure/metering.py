"""What a trial's seams cost per micro-step: short turns with and without them, in one process.

First the meter alone, against nothing; then with it the autocast region and the accumulation, against a loop that does
both by hand, so that the casts are in either.

Times are CPU time of the one thread that trains: the meter neither waits nor starts threads, and on a shared machine
wall time says more of the neighbours. Turns are of a few steps and in the order with, without, without, with, so that
what drifts is in both alike. A group of them is as long as two of the meter's blocks and is one difference; a process
has the median of its groups, since what a neighbour takes away is in few of them and is a multiple of what is looked
for. How a process lies in memory is in all of its groups, so the figure is of several processes, as is its interval.

Not in it are the few looks at a window's interval, which say whether it may end: they are no part of a step.
"""

from __future__ import annotations

import functools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from autotune.measure.interval import student_t_quantile
from autotune.measure.window_stopping import WindowRule
from autotune.model.facts import ScriptFacts
from autotune.model.result import RankResult
from autotune.protocol.codec import from_plain, to_plain
from autotune.protocol.job import Mode
from autotune.protocol.paths import TrialPaths
from autotune.settings import Precision
from autotune.space.script_settings import script_settings_of
from tests.benchmarks.measure.rows import Row, Rows
from tests.jobs import job_of

ROOT = Path(__file__).resolve().parents[3]
JOB = Path(__file__).with_name("metered_job.py")
NUM_GROUPS = 40
NUM_REPEATS = 8
SPINS_S = {"short": 0.0, "3 ms": 0.0027}
"""CPU time that a step takes beside its small model's: one of about 0.3 ms, where the cost shows best, and one of 3."""
MAX_COST_US = 20.0
MAX_SEAMS_US = 40.0
"""More, for the autocast region and the accumulation together, per micro-step."""
EXPECTED_S = 25.0
HALVED: dict[str, Any] = {"batch_size": 16, "grad_accum_steps": 2}
"""The job's batch in two."""
ENDLESS = WindowRule(half_width_ratio=1e-9, min_window_s=1e6, max_window_s=1e6)
PARTS = ("metering", "seams")
PARTS_OF_CUDA = ("metering-cuda", "seams-cuda")
"""The same with the model on a GPU, whose launches take the thread's time; run by name."""


class Cost(NamedTuple):
    """Microseconds per micro-step: of a process, or over several."""

    mean_us: float
    low_us: float
    high_us: float


def run(part: str, rows: Rows) -> bool:
    """Measures what is missing of a part; whether it is complete."""
    keys = [f"{name} #{repeat}" for name in SPINS_S for repeat in range(NUM_REPEATS)]
    return rows.fill(part, keys, lambda key: _measure(part, SPINS_S[key.partition(" #")[0]]), expected_s=EXPECTED_S)


def _measure(part: str, spin_s: float) -> Row:
    """Runs the job as a trial that never has enough, and says what a micro-step costs more."""
    by_hand = part.startswith("seams")
    options = ("--device", _device(part), *(("--by-hand",) if by_hand else ()))
    facts = _facts(_device(part))
    script_settings = script_settings_of(facts)
    settings = replace(script_settings, precision=Precision.BF16, **HALVED) if by_hand else script_settings
    with tempfile.TemporaryDirectory() as folder:
        output = _run(
            Path(folder),
            spin_s,
            options,
            mode=Mode.TRIAL,
            settings=settings,
            script_settings=script_settings,
            facts=facts,
            device=_device(part),
        )
    said = json.loads(output.splitlines()[-1])
    cost = _in_microseconds(said["differences"])
    return {
        "step_us": round(1e6 * statistics.median(said["plain"]), 1),
        "cost_us": round(cost.mean_us, 2),
        "interval_us": [round(cost.low_us, 2), round(cost.high_us, 2)],
        "region_us": round(1e6 * said["region"], 2),
        "seams": said["seams"],
    }


def _device(part: str) -> str:
    return "cuda" if part in PARTS_OF_CUDA else "cpu"


@functools.cache
def _facts(device: str) -> ScriptFacts:
    """What a probe of the job learns; the same whatever its steps take."""
    with tempfile.TemporaryDirectory() as folder:
        _run(
            Path(folder),
            0.0,
            ("--device", device),
            mode=Mode.PROBE,
            settings=None,
            script_settings=None,
            facts=None,
            device=device,
        )
        report = from_plain(RankResult, json.loads(TrialPaths(Path(folder)).result(0).read_text()))
    assert report.facts is not None
    return report.facts


def _run(folder: Path, spin_s: float, options: tuple[str, ...], **values: Any) -> str:
    paths = TrialPaths(folder)
    paths.results.mkdir(parents=True)
    command = (sys.executable, str(JOB), "--groups", str(NUM_GROUPS), "--spin-s", str(spin_s), *options)
    limits: dict[str, Any] = {"start_limit_s": 600.0, "total_limit_s": 600.0}
    job = job_of(command=command, cwd=str(ROOT), cap_bytes=1 << 40, window=ENDLESS, **limits, **values)
    paths.job.write_text(json.dumps(to_plain(job)))
    environment = {
        **os.environ,
        "AUTOTUNE_TRIAL": str(folder),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "autotune" / "trial" / "inject"), str(ROOT)]),
    }
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def _in_microseconds(differences: list[float]) -> Cost:
    """The median of a process's groups, with its interval."""
    microseconds = [1e6 * seconds for seconds in differences]
    return Cost(statistics.median(microseconds), *median_interval(microseconds))


def report(rows: Rows) -> Iterator[str]:
    """Markdown."""
    if any(rows.of(part) for part in (*PARTS, *PARTS_OF_CUDA)):
        yield "## Cost of the meter, and of the settings' seams\n"
        yield (
            f"The median of {NUM_GROUPS} groups of turns of 4 micro-steps, with the seams and without, in one process; "
            f"means of {NUM_REPEATS} processes with their 95 % intervals, which are held against the limits as a "
            "whole.\n"
        )
    for where in ("", "-cuda"):
        yield from _report_of(_of(rows, f"metering{where}"), _of(rows, f"seams{where}"), " on a GPU" if where else "")


def _report_of(metering: dict[str, list[Row]], settings: dict[str, list[Row]], where: str) -> Iterator[str]:
    if any(metering.values()):
        yield from _table(f"the meter{where}", metering)
        worst_us = max(_cost(several).high_us for several in metering.values() if several)
        yield f"\nAt most {MAX_COST_US:.0f} us: **{_met(metering, worst_us <= MAX_COST_US)}**.\n"
    if any(settings.values()):
        yield "The same with an autocast region per micro-step and two micro-steps per step, against both by hand.\n"
        yield from _table(f"the meter, the region and the accumulation{where}", settings)
        region_us = statistics.median(row["region_us"] for several in settings.values() for row in several)
        worst_us = max(_cost(several).high_us for several in settings.values() if several) + region_us
        is_met = worst_us <= MAX_COST_US + MAX_SEAMS_US
        yield (
            f"\nA region with nothing in it takes {region_us:.1f} us, in the loop by hand too. With it at most "
            f"{MAX_COST_US:.0f} + {MAX_SEAMS_US:.0f} us: **{_met(settings, is_met)}**.\n"
        )


def _of(rows: Rows, part: str) -> dict[str, list[Row]]:
    return {name: [row for row in rows.of(part) if row["key"].startswith(f"{name} ")] for name in SPINS_S}


def _cost(found: list[Row]) -> Cost:
    """By a t-interval over the processes; without end for a single one."""
    costs_us = [row["cost_us"] for row in found]
    mean_us = statistics.fmean(costs_us)
    if len(costs_us) < 2:
        return Cost(mean_us, -math.inf, math.inf)
    error_us = statistics.stdev(costs_us) / math.sqrt(len(costs_us))
    half_width_us = student_t_quantile(0.975, len(costs_us) - 1) * error_us
    return Cost(mean_us, mean_us - half_width_us, mean_us + half_width_us)


def median_interval(values: list[float]) -> tuple[float, float]:
    """Ends of the 95 % interval of a median, by the order of the values alone: outliers do not widen it."""
    ordered = sorted(values)
    # By the normal approximation of the binomial: at 24 values the 8th from either end.
    rank = max(0, math.floor(len(ordered) / 2 - 0.98 * math.sqrt(len(ordered))))
    return ordered[rank], ordered[-1 - rank]


def _table(what: str, found: dict[str, list[Row]]) -> Iterator[str]:
    yield f"| micro-step | with {what} | 95 % interval | widest interval of one process |"
    yield "|---|---|---|---|"
    for several in found.values():
        if several:
            step_us, cost = statistics.median(row["step_us"] for row in several), _cost(several)
            low_us, high_us = max((row["interval_us"] for row in several), key=lambda ends: ends[1] - ends[0])
            yield (
                f"| {step_us:.0f} us | {cost.mean_us:+.1f} us | {cost.low_us:+.1f} to {cost.high_us:+.1f} us "
                f"| {low_us:+.1f} to {high_us:+.1f} us |"
            )


def _met(found: dict[str, list[Row]], is_met: bool) -> str:
    is_complete = all(len(several) == NUM_REPEATS for several in found.values())
    return "met" if is_met and is_complete else "not met" if is_complete else "not complete"
