"""Advice on the training step itself: the script's own work, small steps, number formats, several devices. Pure."""

from __future__ import annotations

from pathlib import PurePath

from autotune.diagnose.advice.loading_advice import place_of_loader
from autotune.diagnose.advice.step_times import MAX_GAIN, gain_of, least_building_s, wait_s, wait_with_larger_batch
from autotune.model.diagnosis import Advice, Diagnosis, Sickness
from autotune.model.observation import HostPlace
from autotune.settings import Precision

OVERHEAD_GAIN = 1.5
"""Gain in samples per second of a larger batch from which most of a step was not arithmetic."""
LEAST_OWN_SHARE = 0.1
"""Least share of a step for statements without a read of a tensor's value; only the author knows their purpose."""
LEAST_HOST_GAIN = 1.1
"""Least gain that is only an upper bound; a queue can hide a host that is 10 % slower than the device."""


def leave_values_on_device(diagnosis: Diagnosis) -> Advice | None:
    """Advises against reading tensors' values in every step."""
    places = [place for place in diagnosis.observation.host_places if place.call]
    if not places:
        return None
    heaviest = places[0]
    gain = gain_of(diagnosis, _without(diagnosis, places))
    if gain is None:
        return None
    calls = sum(place.calls_per_step for place in places)
    named = ", ".join(dict.fromkeys(_place_text(place) for place in places[:3]))
    what_for = (
        "each waits for the device, which then waits for the script"
        if not diagnosis.is_cpu
        else "Python does the work around the calls, one value after the other"
    )
    source = f"{_share_text(places)} of a step, with {calls:.3g} calls such as {heaviest.call}; {what_for}"
    return Advice(
        sickness=Sickness.HOST,
        action=(
            "Do not read tensors' values in every step: add up on tensors (total += loss.detach()), compute metrics on "
            "whole batches, and read or print the results every hundred steps."
        ),
        where=named,
        gain=gain,
        source=source,
    )


def do_less_between_steps(diagnosis: Diagnosis) -> Advice | None:
    """Advises less of the script's own work in every step."""
    places = [p for p in diagnosis.observation.host_places if not p.call and p.share >= LEAST_OWN_SHARE]
    if not places:
        return None
    gain = gain_of(diagnosis, _without(diagnosis, places))
    if gain is None:
        return None
    return Advice(
        sickness=Sickness.HOST,
        action="Check whether every step needs this work; work that training does not need can be done less often.",
        where=", ".join(_place_text(place) for place in places[:3]),
        gain=gain,
        is_bound=True,
        source=f"{_share_text(places)} of a step, in addition to loading, model and optimizer",
    )


def larger_batch(diagnosis: Diagnosis) -> Advice | None:
    """Advises a larger batch, measured on the script's own step."""
    larger = diagnosis.observation.larger_batch
    if larger is None:
        return None
    factor = larger.factor
    # The time without the wait changes by the ratio measured on repeated batches.
    training_s = (diagnosis.step_s - wait_s(diagnosis)) * larger.step_s / larger.own_step_s / factor
    then_s = wait_with_larger_batch(diagnosis, larger) + training_s
    gain = gain_of(diagnosis, then_s)
    if gain is None:
        return None
    batch, accumulation = diagnosis.natural.batch_size, diagnosis.natural.grad_accum_steps
    if accumulation > 1 and batch is not None and accumulation % factor == 0:
        settings = {"batch_size": factor * batch, "grad_accum_steps": accumulation // factor}
        action = (
            f"Take micro-batches of {factor * batch} and accumulate {accumulation // factor} of them: the same step."
        )
    elif batch is not None:
        settings = {"batch_size": factor * batch}
        action = (
            f"Train on batches of {factor * batch} instead of {batch}, if training allows it: the result of training "
            "depends on the batch size, and the learning rate must be adapted."
        )
    else:
        settings, action = {}, f"Train on batches {factor} times as large, if training allows it."
    is_overhead = factor * larger.own_step_s / larger.step_s >= OVERHEAD_GAIN
    source = (
        f"measured: a step of {1000 * larger.own_step_s:.2f} ms takes {1000 * larger.step_s:.2f} ms with a batch "
        f"{factor} times as large" + ("; most of it is not arithmetic" if is_overhead else "")
    )
    return Advice(
        sickness=Sickness.OVERHEAD if is_overhead else Sickness.COMPUTE,
        action=action,
        where=f"batch_size of the DataLoader at {place_of_loader(diagnosis)}",
        gain=gain,
        source=source,
        settings=settings,
    )


def fused_optimizer(diagnosis: Diagnosis) -> Advice | None:
    """Advises the optimizer's fused form, measured on copies of the parameters."""
    optimizer = diagnosis.observation.optimizer
    if optimizer is None:
        return None
    gain = gain_of(diagnosis, diagnosis.step_s - max(0.0, optimizer.own_s - optimizer.fused_s))
    if gain is None:
        return None
    return Advice(
        sickness=Sickness.OVERHEAD,
        action=f"Step all parameters at once: {optimizer.name}(..., fused=True).",
        where=f"{optimizer.name} at {optimizer.place or diagnosis.observation.step_place or 'its construction'}",
        gain=gain,
        source=(
            f"measured on copies of the parameters: {1000 * optimizer.own_s:.2f} ms as it is, "
            f"{1000 * optimizer.fused_s:.2f} ms fused"
        ),
    )


def fewer_launches(diagnosis: Diagnosis) -> Advice | None:
    """Advises a compiled model when the device waits for the host."""
    share = diagnosis.device_share
    if share is None or diagnosis.natural.compile:
        return None
    step_s = diagnosis.step_s
    with_calls = [place for place in diagnosis.observation.host_places if place.call]
    after_host_s = _without(diagnosis, with_calls) if with_calls else step_s
    then_s = max(share * step_s + wait_s(diagnosis), least_building_s(diagnosis), 1e-9)
    gain = min(MAX_GAIN, after_host_s / then_s)
    if gain < LEAST_HOST_GAIN:
        return None
    return Advice(
        sickness=Sickness.OVERHEAD,
        action='Compile the model: torch.compile(model, mode="reduce-overhead") also records its steps as CUDA graphs.',
        where=_place_of_model(diagnosis),
        gain=gain,
        is_bound=True,
        source=f"the device works in {share:.0%} of a step, by torch's profiler, and waits for the host otherwise",
        settings={"compile": True},
    )


def faster_format(diagnosis: Diagnosis) -> Advice | None:
    """Advises another number format, measured on copies of the heaviest layers."""
    ratios = [ratio for ratio in diagnosis.observation.formats if ratio.ratio > 1 and ratio.is_possible]
    if not ratios or diagnosis.compute_s is None:
        return None
    best = max(ratios, key=lambda ratio: ratio.ratio)
    share = _arithmetic_share(diagnosis)
    gain = gain_of(diagnosis, diagnosis.step_s * (1 - share * (1 - 1 / best.ratio)))
    if gain is None:
        return None
    is_double = diagnosis.observation.parameter_dtype == "float64"
    action = {
        Precision.FP32: "Train in float32: model.float(), and float32 inputs; the parameters are float64.",
        Precision.TF32: 'Allow TF32: torch.set_float32_matmul_precision("high").',
        Precision.BF16: "Run forward and loss under torch.autocast in bfloat16.",
        Precision.FP16: "Run forward and loss under torch.autocast in float16, with a GradScaler.",
    }[best.precision]
    where = _place_of_model(diagnosis)
    return Advice(
        sickness=Sickness.COMPUTE,
        action=action,
        where=where if is_double else f"precision={best.precision.value}, or {where}",
        gain=gain,
        source=(
            f"measured on copies of the {best.num_layers} heaviest layers: {best.ratio:.2f} times as fast; "
            f"forward and backward are {share:.0%} of a step"
        ),
        settings={} if is_double else {"precision": best.precision.value},
    )


def one_process_per_device(diagnosis: Diagnosis) -> Advice | None:
    """Advises DistributedDataParallel instead of DataParallel."""
    if not diagnosis.observation.data_parallel:
        return None
    return Advice(
        sickness=Sickness.DATA_PARALLEL,
        action="Train with DistributedDataParallel, one process per device, instead of DataParallel.",
        where=f"{_place_of_model(diagnosis)}; start it with torchrun",
        gain=None,
        source="DataParallel copies the model to every device in every step, and one process drives all devices",
    )


def _share_text(places: list[HostPlace]) -> str:
    """The statements' share of a step in words."""
    return f"these lines take {min(1.0, sum(place.share for place in places)):.0%}"


def _place_text(place: HostPlace) -> str:
    """A statement as `train.py:42` or `train.py:42-45`."""
    name = PurePath(place.file).name
    if place.first_line == place.last_line:
        return f"{name}:{place.line}"
    return f"{name}:{place.first_line}-{place.last_line}"


def _place_of_model(diagnosis: Diagnosis) -> str:
    return f"the model called at {diagnosis.observation.forward_place or 'an unknown place'}"


def _without(diagnosis: Diagnosis, places: list[HostPlace]) -> float:
    """Seconds of a step without these statements, and at least the device's own time."""
    left_s = diagnosis.step_s * max(0.0, 1 - sum(place.share for place in places))
    device_s = (diagnosis.device_share or 0.0) * diagnosis.step_s
    return max(left_s, device_s, 1e-9)


def _arithmetic_share(diagnosis: Diagnosis) -> float:
    """Share of a step in which layers compute; on CUDA the share in which the device works without copies."""
    if diagnosis.device_share is not None:
        return max(0.0, diagnosis.device_share - (diagnosis.copy_share or 0.0))
    steps = diagnosis.observation.steps
    return min(1.0, (steps.forward_s + steps.backward_s) / steps.wall_s)
