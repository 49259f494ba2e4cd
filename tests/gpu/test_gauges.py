"""What a person sees of a trial that trains on a CUDA device."""

from __future__ import annotations

import time

import pytest

from autotune.model.gauges import TrialPhase
from autotune.model.outcome import Outcome
from autotune.runner.handle import POLL_S
from tests.gpu.bench import THREE_SECONDS, Bench, note

pytestmark = pytest.mark.gpu


def test_the_gauges_of_a_trial_show_its_device_and_its_phases(bench: Bench) -> None:
    handle = bench.runner.start(bench.trial(bench.probed("trains.py"), window=THREE_SECONDS))
    seen = []
    while not handle.poll():
        seen.append(handle.gauges())
        time.sleep(POLL_S)
    result = handle.result()
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    measuring = [gauges for gauges in seen if gauges.phase is TrialPhase.WINDOW]
    assert measuring and seen[0].phase is TrialPhase.STARTING
    last = measuring[-1]
    assert last.device_utilization is not None and last.cpu_fraction is not None
    assert last.memory_bytes is not None and 0 < last.memory_bytes <= (result.peak_memory_bytes or 0)
    rates = [gauges.samples_per_second for gauges in measuring if gauges.samples_per_second is not None]
    assert rates and result.measurement is not None
    note("GPU gauge in the window", f"{last.device_utilization:.0%}")
    note("rate by the gauges, by the measurement", f"{rates[-1]:.0f}, {result.measurement.samples_per_second:.0f}")
