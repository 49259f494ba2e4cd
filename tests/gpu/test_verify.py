"""A counted run on a device: the host's clock, synchronised at both ends, agrees with a trial's events."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from autotune.measure.window_stopping import WindowRule
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.protocol.job import Mode
from tests.gpu.bench import THREE_SECONDS, Bench, note

pytestmark = pytest.mark.gpu


def test_a_counted_run_has_the_rate_of_a_trial(bench: Bench, plain: TrialResult) -> None:
    job = bench.trial(bench.probed("trains.py"), window=THREE_SECONDS)
    window = WindowRule(half_width_ratio=0.05, min_window_s=0.0, max_window_s=5.0)
    ratios = []
    for trial in (plain, bench.run(job), bench.run(job)):
        counted = bench.run(replace(job, mode=Mode.RUN, request=replace(job.request, window=window)))
        assert counted.outcome is Outcome.OK, counted.reason + counted.log_tail
        assert counted.measurement is not None and trial.measurement is not None
        rates = counted.measurement.samples_per_second, trial.measurement.steady_samples_per_second
        ratios.append(rates[0] / rates[1])
        note("counted run, and a trial, both of the script alone", f"{rates[0]:.0f}, {rates[1]:.0f} a second")
    assert statistics.median(ratios) == pytest.approx(1.0, abs=0.1)
