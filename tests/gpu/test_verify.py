"""A counted run on a device: the host's clock, synchronised at both ends, agrees with a trial's events."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.measure.window_stopping import WindowRule
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.protocol.job import Mode
from tests.gpu.bench import Bench, note

pytestmark = pytest.mark.gpu


def test_a_counted_run_has_the_rate_of_a_trial(bench: Bench, plain: TrialResult) -> None:
    job = bench.trial(bench.probed("trains.py"))
    window = WindowRule(half_width_ratio=0.05, min_window_s=0.0, max_window_s=5.0)
    counted = bench.run(replace(job, mode=Mode.RUN, request=replace(job.request, window=window)))
    assert counted.outcome is Outcome.OK, counted.reason + counted.log_tail
    assert counted.measurement is not None and plain.measurement is not None
    ratio = counted.measurement.samples_per_second / plain.measurement.steady_samples_per_second
    note("counted run against a trial, both of the script alone", f"{ratio:.3f}")
    assert ratio == pytest.approx(1.0, abs=0.1)
