"""Several settings measured in one process on a CUDA device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from autotune.model.outcome import Outcome
from autotune.model.result import StartKind, TrialResult
from autotune.runner.fork_runner import ForkRunner
from autotune.runner.live_runner import LiveRunner
from autotune.settings import Precision
from autotune.study.jobs import Jobs
from autotune.units import MIB
from tests.gpu.bench import Bench, note, rank_of

pytestmark = pytest.mark.gpu

CHANGES: list[dict[str, Any]] = [
    {"num_workers": 2, "pin_memory": True, "non_blocking": True},
    {"num_workers": 2, "pin_memory": True, "stream_prefetch": True},
    {"precision": Precision.BF16, "channels_last": True},
    {"precision": Precision.FP16},
    {"precision": Precision.TF32, "cudnn_benchmark": True},
    {"batch_size": 16, "grad_accum_steps": 4},
    {"memory_fraction": 0.3},
]
"""Each is followed by the script's own settings."""


@pytest.fixture
def jobs(bench: Bench) -> Jobs:
    return bench.probed("trains.py")


@pytest.fixture
def live(bench: Bench, jobs: Jobs) -> Iterator[LiveRunner]:
    assert jobs.facts is not None
    runner = LiveRunner(ForkRunner(bench.runner, jobs.facts))
    yield runner
    runner.close()


def run(bench: Bench, runner: LiveRunner, jobs: Jobs, **settings: Any) -> TrialResult:
    started = runner.start(replace(bench.trial(jobs, **settings), serves=True))
    while not started.poll():
        time.sleep(0.02)
    return started.result()


def test_settings_are_switched_in_one_process_and_back(bench: Bench, jobs: Jobs, live: LiveRunner) -> None:
    first = run(bench, live, jobs)
    assert first.outcome is Outcome.OK, first.why + first.log_tail
    own = dict(rank_of(first).observed)
    for change in CHANGES:
        result = run(bench, live, jobs, **change)
        assert (result.outcome, result.start) == (Outcome.OK, StartKind.LIVE), f"{change}: {result.why}"
        observed = rank_of(result).observed
        assert {name: observed[name] for name in change} == change
        note(f"live {change}", f"{result.wall_s:.1f} s, switch {result.durations_s['switch']:.2f} s")
        after = run(bench, live, jobs)
        assert (after.outcome, after.start) == (Outcome.OK, StartKind.LIVE), f"after {change}: {after.why}"
        assert dict(rank_of(after).observed) == own, f"after {change}"


def test_a_model_is_compiled_once_for_each_kind_of_graph(bench: Bench, jobs: Jobs, live: LiveRunner) -> None:
    run(bench, live, jobs)
    compiled = [run(bench, live, jobs, compile=True) for _ in range(2)]
    plain = run(bench, live, jobs)
    again = run(bench, live, jobs, compile=True)
    for result in (*compiled, plain, again):
        assert (result.outcome, result.start) == (Outcome.OK, StartKind.LIVE), result.why + result.log_tail
    assert [rank_of(result).observed["compile"] for result in (*compiled, plain, again)] == [True, True, False, True]
    switches = [result.durations_s["switch"] for result in (*compiled, again)]
    note("switch to a compiled model, first and later", ", ".join(f"{seconds:.2f} s" for seconds in switches))
    assert rank_of(again).observed["precision"] == rank_of(compiled[0]).observed["precision"]


def test_the_peaks_of_a_measurement_are_its_own(bench: Bench, jobs: Jobs, live: LiveRunner) -> None:
    run(bench, live, jobs)
    small = run(bench, live, jobs, batch_size=16, grad_accum_steps=4)
    large = run(bench, live, jobs)
    again = run(bench, live, jobs, batch_size=16, grad_accum_steps=4)
    peaks = [rank_of(result).peak_reserved_bytes or 0 for result in (small, large, again)]
    assert peaks[0] < peaks[1] and abs(peaks[2] - peaks[0]) < 32 * MIB
    held = [result.peak_memory_bytes or 0 for result in (small, large, again)]
    assert held[0] < held[1] and abs(held[2] - held[0]) < 64 * MIB
    note("device memory live, small, large, small", ", ".join(f"{each / MIB:.0f} MiB" for each in held))


@pytest.mark.parametrize("compiled", [False, True])
def test_the_peak_of_a_half_format_is_the_same_live_and_in_a_new_process(
    bench: Bench, jobs: Jobs, live: LiveRunner, compiled: bool
) -> None:
    half = {"precision": Precision.BF16, "compile": compiled}
    run(bench, live, jobs)
    switched = run(bench, live, jobs, **half)
    alone = bench.run(bench.trial(jobs, **half))
    assert switched.start is StartKind.LIVE and switched.peak_memory_bytes and alone.peak_memory_bytes
    ratio = switched.peak_memory_bytes / alone.peak_memory_bytes
    note(f"peak of bf16 live over that of a new process, compiled: {compiled}", f"{ratio:.3f}")
    assert ratio < 1.1
