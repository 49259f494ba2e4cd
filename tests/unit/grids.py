"""A small recorded grid, as if measured: 4 workers x 2 precisions, the most workers over the cap."""

from __future__ import annotations

import math
import random
from typing import Any

from autotune.lab.grid import CellRecord, Grid, GridHeader
from autotune.lab.grid_space import enumerate_cells, grid_space, space_to_record
from autotune.model.outcome import Outcome
from autotune.model.result import Measurement, TrialResult
from autotune.settings import Settings
from autotune.space.derive import derive_space
from autotune.units import MIB
from tests.unit.facts import cpu_machine, script_facts, search_spec

CAP_BYTES = 400 * MIB
INTERRUPTED = TrialResult(outcome=Outcome.INTERRUPTED, reason="It was ended from outside.")
SPEC = search_spec(ranges=(("num_workers", "0,1,2,4"), ("precision", "fp32,bf16")))
SPACE = grid_space(derive_space(script_facts(), cpu_machine(cpus=4.0), SPEC), SPEC)


def header(**changes: Any) -> GridHeader:
    cells = enumerate_cells(SPACE).cells
    own = cells[0].to_dict()
    values: dict[str, Any] = {
        "study": "train",
        "command": ("train.py",),
        "fingerprint": {"script": "abc", "host": {}},
        "memory_cap": "400MiB",
        "memory_cap_bytes": CAP_BYTES,
        "usable_cpus": 4.0,
        "device": "cpu",
        "effective_batch": "fixed",
        "asked": SPEC.ranges,
        "repeats": 2,
        "window_s": None,
        "seed": 0,
        "natural": SPACE.script_settings,
        "space": space_to_record(SPACE),
        "facts": script_facts(),
        "cells": tuple({k: v for k, v in cell.to_dict().items() if v != own[k]} for cell in cells),
        "dropped": (),
        "autotune": "0.1.0",
        "recorded_at": "2026-11-20T10:00:00+00:00",
    }
    return GridHeader(**{**values, **changes})


def true_rate(settings: Settings) -> float:
    """What the imagined job does: two workers feed it, bf16 slows it down."""
    return 100.0 * (1 + min(settings.num_workers, 2)) * (0.6 if settings.precision == "bf16" else 1.0)


def ok(rate: float, *, peak: int = 200 * MIB) -> TrialResult:
    measurement = Measurement(
        samples_per_second=rate,
        low=rate * 0.97,
        high=rate * 1.03,
        is_converged=True,
        is_nonstationary=False,
        is_primed=False,
        num_blocks=12,
        window_s=2.0,
        data_wait_fraction=0.2,
        compute_samples_per_second=400.0,
    )
    return TrialResult(outcome=Outcome.OK, measurement=measurement, peak_memory_bytes=peak, wall_s=5.0)


def over_cap(peak: int = 450 * MIB) -> TrialResult:
    return TrialResult(outcome=Outcome.OVER_CAP, reason="It held too much.", peak_memory_bytes=peak, wall_s=3.0)


def record(cell: int, result: TrialResult, **changes: Any) -> CellRecord:
    return CellRecord(
        **{"cell": cell, "round": 0, "started_at": "2026-11-20T10:00:00+00:00", "result": result, **changes}
    )


def measured(settings: Settings, noise: float = 0.0) -> TrialResult:
    """A trial of the imagined job: four workers need more than the cap."""
    peak = (200 + 60 * settings.num_workers) * MIB
    return over_cap(peak) if peak > CAP_BYTES else ok(true_rate(settings) * math.exp(noise), peak=peak)


def grid(*, repeats: int = 2, deviation: float = 0.01, **changes: Any) -> Grid:
    """The complete recording, with seeded noise."""
    chance = random.Random(5)
    made = header(repeats=repeats, **changes)
    records = [
        record(cell, measured(settings, chance.gauss(0.0, deviation)), round=number)
        for number in range(repeats)
        for cell, settings in enumerate(made.settings)
    ]
    return Grid(made, records)
