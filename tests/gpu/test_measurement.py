"""Settings that only a CUDA device has are in force, and what is measured is the time that passes."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys

import pytest

from autotune.host import DeviceInfo
from autotune.measure.block import Phase
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from tests.gpu.bench import SCRIPTS, Bench, note, rank_of, said

pytestmark = pytest.mark.gpu


def speed(result: TrialResult) -> str:
    """The figures of a trial, for people."""
    assert result.measurement is not None
    compute = result.measurement.compute_samples_per_second or 0.0
    return f"{result.measurement.samples_per_second:9.0f} samples/s, compute alone {compute:9.0f}"


def test_events_agree_with_the_wall_clock(plain: TrialResult) -> None:
    assert plain.outcome is Outcome.OK, plain.reason + plain.log_tail
    rank = rank_of(plain)
    by_events_s = sum(block.duration_s for block in rank.blocks if block.phase is Phase.WINDOW)
    by_wall_s = rank.durations_s["window"]
    note("window of 3 s, by events and by the wall clock", f"{by_events_s:.3f} s {by_wall_s:.3f} s")
    assert by_events_s == pytest.approx(by_wall_s, rel=0.1)
    assert by_events_s < by_wall_s * 1.01


def test_one_event_per_block_is_used_again_and_neither_waits_nor_piles_up(device: DeviceInfo) -> None:
    command = [sys.executable, str(SCRIPTS / "marks.py")]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS.parents[2])}
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(ended.stdout)
    assert found["num_blocks"] == 200
    assert found["by_events_s"] == pytest.approx(found["wall_s"], rel=0.05)
    # What the driver queues bounds how far the host runs ahead: about a thousand launches, at several per step.
    assert found["num_events"] < 60
    note("events for 4000 steps, the host ahead", str(found["num_events"]))
    note("marking a block", f"median {found['median_cost_us']:.1f} us, mean {found['mean_cost_us']:.1f} us")


def test_steps_in_which_cudnn_searches_kernels_for_a_new_size_are_left_out_of_the_rate(bench: Bench) -> None:
    jobs = bench.probed("resizes.py")
    result, plain = bench.run(bench.trial(jobs)), bench.run(bench.trial(jobs, cudnn_benchmark=False))
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert rank_of(result).left_out_s > 0 and rank_of(plain).left_out_s == 0
    note("resized images, kernels searched", speed(result))
    note("resized images, kernels not searched", speed(plain))


def test_the_state_of_the_device_is_written_with_the_trial(plain: TrialResult) -> None:
    found = plain.surroundings
    assert found is not None
    assert found.num_strangers == 0
    assert found.sm_clock_mhz is None or found.sm_clock_mhz > 100
    assert found.temperature_c is None or 10 < found.temperature_c < 120
    if found.device_utilization is not None:
        assert found.device_utilization > 0.05, "a device that trains is not idle"
    note(
        "clock, temperature, utilisation in the window",
        f"{found.sm_clock_mhz} {found.temperature_c} {found.device_utilization}",
    )
    note("reasons for a lower clock; cores of others", f"{found.throttle_reasons} {found.foreign_cpus}")


def test_twice_the_batch_is_measured_by_its_compute_alone(bench: Bench, plain: TrialResult) -> None:
    jobs = bench.probed("trains.py")
    assert jobs.script_settings is not None
    result = bench.run(jobs.batch_probe(jobs.script_settings, 2))
    assert result.outcome is Outcome.RACED_OUT, result.reason + result.log_tail
    assert result.measurement is not None and result.measurement.compute_samples_per_second is not None
    compute = [block for block in rank_of(result).blocks if block.phase is Phase.COMPUTE]
    assert compute and all(block.num_samples == 2 * 64 * block.num_steps for block in compute)
    note("twice the batch, compute alone", f"{result.measurement.compute_samples_per_second:9.0f} samples/s")


def test_nothing_is_changed_by_the_scripts_own_settings(plain: TrialResult) -> None:
    seen = said(plain)
    assert seen["keeps_fp32"]
    assert not any(seen[name] for name in ("is_pinned", "is_copy_in_flight", "is_channels_last", "cudnn_benchmark"))
    assert not seen["is_expandable"]
    assert seen["num_graphs"] == 0
    note("fp32", speed(plain))


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_a_precision_is_in_force(bench: Bench, plain: TrialResult, device: DeviceInfo, precision: str) -> None:
    if precision != "fp16" and device.capability is not None and device.capability < (8, 0):
        pytest.skip(f"{device.name} has no {precision}, which begins with compute capability 8.0")
    result = bench.train(precision=precision)
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert rank_of(result).observed["precision"] == precision
    seen, before = said(result), said(plain)
    assert seen["keeps_fp32"] == (precision != "tf32")
    is_scaled = seen["largest_gradient"] > 1000 * before["largest_gradient"]
    assert is_scaled == (precision == "fp16")
    note(precision, speed(result))


def test_pinned_batches_are_copied_while_the_script_goes_on(bench: Bench) -> None:
    result = bench.train(pin_memory=True, non_blocking=True, num_workers=2)
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert said(result)["is_pinned"]
    assert said(result)["is_copy_in_flight"]
    assert rank_of(result).observed["pin_memory"] is True
    note("pinned, not blocking, 2 workers", speed(result))


def test_a_pinned_batch_alone_is_waited_for(bench: Bench) -> None:
    result = bench.train(pin_memory=True)
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert said(result)["is_pinned"]
    assert not said(result)["is_copy_in_flight"]


def test_channels_last_and_cudnns_search_are_in_force(bench: Bench) -> None:
    facts = bench.probed("trains.py").facts
    assert facts is not None and "no_convolution" not in facts.notes
    result = bench.train(channels_last=True, cudnn_benchmark=True)
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert said(result)["is_channels_last"]
    assert said(result)["cudnn_benchmark"]
    observed = rank_of(result).observed
    assert (observed["channels_last"], observed["cudnn_benchmark"]) == (True, True)
    note("channels_last, cudnn_benchmark", speed(result))


def test_segments_of_the_allocator_expand(bench: Bench, plain: TrialResult) -> None:
    result = bench.train(expandable_segments=True)
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert said(result)["is_expandable"]
    assert said(result)["fraction"] == pytest.approx(said(plain)["fraction"], abs=1e-4)
    note("expandable segments", speed(result))


def test_compilation_is_in_force(bench: Bench) -> None:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed, which torch.compile builds its kernels with")
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        pytest.skip("there is no C compiler, which torch.compile needs on this device")
    result = bench.train(compile=True)
    assert result.outcome is Outcome.OK, result.reason + result.log_tail
    assert rank_of(result).observed["compile"] is True
    assert said(result)["num_graphs"] > 0
    note("compile", speed(result))
