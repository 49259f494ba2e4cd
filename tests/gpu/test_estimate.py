"""Estimated memory against peaks measured on a CUDA device, at the script's own micro-batch and at others."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.model.outcome import Outcome
from autotune.study.estimate import memory_parts
from autotune.units import format_bytes
from tests.gpu.bench import Bench, note, rank_of

pytestmark = pytest.mark.gpu

MOST_ERROR = 0.25


@pytest.mark.parametrize("script", ["trains.py", "varies.py", "attends.py", "converts.py fork"])
def test_the_estimate_is_near_the_peak_at_the_probes_batch_and_at_a_quarter_and_four_times_of_it(
    bench: Bench, script: str
) -> None:
    jobs = bench.probed(*script.split())
    assert jobs.facts is not None and jobs.script_settings is not None
    parts, own = memory_parts(jobs.facts), jobs.script_settings.batch_size
    assert own is not None
    changes: list[dict[str, Any]] = [{}, {"batch_size": own // 4, "grad_accum_steps": 4}, {"batch_size": 4 * own}]
    errors = {}
    for change in changes:
        result = bench.run(bench.trial(jobs, **change))
        if result.outcome is not Outcome.OK:
            note(f"{script} at {change}", f"{result.outcome}: {result.reason}")
            continue
        size, measured = change.get("batch_size", own), rank_of(result).window_allocated_bytes or 0
        errors[size] = parts.peak_at(size) / measured - 1
        note(
            f"{script} at {size}: estimated, measured",
            f"{format_bytes(parts.peak_at(size))}, {format_bytes(measured)}, {errors[size]:+.1%}",
        )
    assert own in errors and abs(errors[own]) < MOST_ERROR
