from __future__ import annotations

import pytest

from autotune.diagnose.advice.training_advice import (
    do_less_between_steps,
    faster_format,
    fewer_launches,
    fused_optimizer,
    larger_batch,
    leave_values_on_device,
    one_process_per_device,
)
from autotune.model.diagnosis import Sickness
from autotune.model.observation import DeviceTimes, FormatRatio, HostPlace, LargerBatch, OptimizerTimes
from autotune.settings import Precision, Settings

from ..diagnoses import diagnosis, loading_times, observation


def place(**changes):
    values = {"file": "/home/u/train.py", "line": 42, "first_line": 41, "last_line": 43, "share": 0.6}
    return HostPlace(**{**values, **changes})


ITEM = place(call="Tensor.item", calls_per_step=64.0, blocked_share=0.1)


def test_values_read_in_every_step_are_named_with_their_lines_and_counted():
    found = leave_values_on_device(diagnosis(observation=observation(host_places=(ITEM,))))
    assert found is not None and found.sickness is Sickness.HOST
    assert found.gain == pytest.approx(2.5)
    assert found.where == "train.py:41-43" and "64 calls such as Tensor.item" in found.source


def test_one_cheap_reading_in_a_step_on_a_cpu_is_no_sickness():
    cheap = place(call="Tensor.item", calls_per_step=1.0, share=0.01)
    assert leave_values_on_device(diagnosis(observation=observation(host_places=(cheap,)))) is None


def test_on_a_device_that_works_meanwhile_the_gain_ends_at_what_the_device_takes():
    device = DeviceTimes(num_steps=10, busy_s=0.8, copy_s=0.0)
    found = leave_values_on_device(diagnosis(is_cpu=False, observation=observation(host_places=(ITEM,), device=device)))
    assert found is not None and found.gain == pytest.approx(1 / 0.8)
    assert "waits for the device" in found.source


def test_own_work_without_a_reading_is_only_a_bound_and_has_to_be_large():
    found = do_less_between_steps(diagnosis(observation=observation(host_places=(place(),))))
    assert found is not None and found.is_bound and found.gain == pytest.approx(2.5)
    assert do_less_between_steps(diagnosis(observation=observation(host_places=(place(share=0.08),)))) is None


def test_a_step_that_hardly_grows_with_its_batch_is_overhead():
    larger = LargerBatch(factor=8, own_step_s=0.01, step_s=0.02)
    found = larger_batch(diagnosis(observation=observation(larger_batch=larger)))
    assert found is not None and found.sickness is Sickness.OVERHEAD
    assert found.gain == pytest.approx(4.0) and found.settings == {"batch_size": 512}


def test_what_is_waited_for_data_goes_with_the_samples():
    larger = LargerBatch(factor=8, own_step_s=0.01, step_s=0.02)
    found = larger_batch(diagnosis(data_wait_fraction=0.5, observation=observation(larger_batch=larger)))
    assert found is not None and found.gain == pytest.approx(1 / (0.5 + 0.5 / 4))


def test_what_building_takes_once_per_batch_does_not_go_with_the_samples():
    larger = LargerBatch(factor=8, own_step_s=0.01, step_s=0.02, own_build_s=0.01, build_s=0.02)
    seen = observation(larger_batch=larger, loading=loading_times(busy_s=0.1))
    found = larger_batch(diagnosis(data_wait_fraction=0.5, observation=seen))
    assert found is not None and found.gain == pytest.approx(4.0)


def test_waiting_for_a_disk_goes_with_the_samples():
    larger = LargerBatch(factor=8, own_step_s=0.01, step_s=0.02, own_build_s=0.001, build_s=0.002)
    seen = observation(larger_batch=larger, loading=loading_times(busy_s=0.1, cpu_s=0.01))
    found = larger_batch(diagnosis(data_wait_fraction=0.5, observation=seen))
    assert found is not None and found.gain == pytest.approx(1 / (0.5 * (0.9 + 0.1 / 4) + 0.5 / 4))


def test_arithmetic_that_is_a_little_better_on_larger_batches_is_compute():
    larger = LargerBatch(factor=8, own_step_s=0.01, step_s=0.07)
    found = larger_batch(diagnosis(observation=observation(larger_batch=larger)))
    assert found is not None and found.sickness is Sickness.COMPUTE


def test_with_accumulation_the_larger_micro_batch_makes_the_same_step():
    larger = LargerBatch(factor=4, own_step_s=0.01, step_s=0.02)
    script_settings = Settings(batch_size=16, grad_accum_steps=8)
    found = larger_batch(diagnosis(natural=script_settings, observation=observation(larger_batch=larger)))
    assert found is not None and found.settings == {"batch_size": 64, "grad_accum_steps": 2}
    assert "the same step" in found.action


def test_a_fused_optimizer_promises_what_was_timed():
    times = OptimizerTimes(name="Adam", place="train.py:30", own_s=0.05, fused_s=0.01)
    found = fused_optimizer(diagnosis(observation=observation(optimizer=times)))
    assert found is not None and found.gain == pytest.approx(1 / 0.6)
    assert found.where == "Adam at train.py:30"
    slower = OptimizerTimes(name="Adam", place="", own_s=0.01, fused_s=0.02)
    assert fused_optimizer(diagnosis(observation=observation(optimizer=slower))) is None


def test_a_device_that_waits_for_orders_is_given_a_compiled_step():
    device = DeviceTimes(num_steps=10, busy_s=0.25, copy_s=0.0)
    found = fewer_launches(diagnosis(is_cpu=False, observation=observation(device=device)))
    assert found is not None and found.sickness is Sickness.OVERHEAD
    assert found.is_bound and found.gain == pytest.approx(4.0)
    assert fewer_launches(diagnosis()) is None


def test_what_readings_explain_is_not_promised_again_by_compiling():
    device = DeviceTimes(num_steps=10, busy_s=0.4, copy_s=0.0)
    assert fewer_launches(diagnosis(is_cpu=False, observation=observation(device=device, host_places=(ITEM,)))) is None


def test_the_fastest_format_is_taken_as_far_as_the_step_is_arithmetic():
    ratios = (
        FormatRatio(precision=Precision.TF32, ratio=2.0, num_layers=3),
        FormatRatio(precision=Precision.BF16, ratio=4.0, num_layers=3),
    )
    found = faster_format(diagnosis(observation=observation(formats=ratios)))
    assert found is not None and found.settings == {"precision": "bf16"}
    assert found.gain == pytest.approx(1 / (1 - 0.7 * 0.75))


def test_a_format_that_is_slower_here_is_not_advised():
    ratios = (FormatRatio(precision=Precision.BF16, ratio=0.3, num_layers=3),)
    assert faster_format(diagnosis(observation=observation(formats=ratios))) is None


def test_a_format_286_times_as_fast_is_a_broken_measurement_and_no_advice():
    ratios = (FormatRatio(precision=Precision.BF16, ratio=286.0, num_layers=3),)
    assert faster_format(diagnosis(observation=observation(formats=ratios))) is None


def test_double_precision_is_an_edit_and_no_setting():
    ratios = (FormatRatio(precision=Precision.FP32, ratio=2.0, num_layers=2),)
    found = faster_format(diagnosis(observation=observation(formats=ratios, parameter_dtype="float64")))
    assert found is not None and found.sickness is Sickness.COMPUTE
    assert found.settings == {} and "float32" in found.action


def test_data_parallel_is_named_without_a_figure():
    found = one_process_per_device(diagnosis(observation=observation(data_parallel=True)))
    assert found is not None and found.gain is None and "DistributedDataParallel" in found.action
