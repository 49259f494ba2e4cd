"""A counted run on a device: the host's clock, synchronised at both ends, agrees with a trial's events."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from autotune.measure.window_stopping import WindowRule
from autotune.model.outcome import Outcome
from autotune.protocol.job import Mode
from tests.gpu.bench import THREE_SECONDS, Bench, note

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def kept_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The C library keeps freed memory, in trials and in counted runs.

    Batches of 16 MiB lie at its bound for giving memory back. Whether a process gives them back and asks for new pages
    in every step is then chance, and with as many threads as cores it costs a third of the rate of `trains.py`.
    """
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", str(1 << 30))
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", str(1 << 32))


def test_a_counted_run_has_the_rate_of_a_trial(bench: Bench) -> None:
    job = bench.trial(bench.probed("trains.py"), window=THREE_SECONDS)
    window = WindowRule(half_width_ratio=0.05, min_window_s=0.0, max_window_s=5.0)
    ratios = []
    for _ in range(3):
        trial = bench.run(job)
        counted = bench.run(replace(job, mode=Mode.RUN, request=replace(job.request, window=window)))
        assert counted.outcome is Outcome.OK, counted.reason + counted.log_tail
        assert counted.measurement is not None and trial.measurement is not None
        rates = counted.measurement.samples_per_second, trial.measurement.steady_samples_per_second
        ratios.append(rates[0] / rates[1])
        note("counted run, and a trial, both of the script alone", f"{rates[0]:.0f}, {rates[1]:.0f} a second")
    assert statistics.median(ratios) == pytest.approx(1.0, abs=0.1)
