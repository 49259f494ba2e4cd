"""`precision`: number format of the forward pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from autotune.settings.batch_size import why_no_single_step
from autotune.settings.setting import Arguments, Features, Group, KerasSeams, Memory, OwnLine, Setting, Value

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase, SearchCase
    from autotune.settings.data_type import Settings


class Precision(StrEnum):
    """Number format of the forward pass; weights stay in the script's own format."""

    FP32 = "fp32"
    """The script's own precision, unchanged."""
    TF32 = "tf32"
    """fp32 operands, matrix products and convolutions on TF32 units."""
    BF16 = "bf16"
    """An autocast region in bfloat16."""
    FP16 = "fp16"
    """An autocast region in float16, with a scaled loss."""


HALF = (Precision.BF16, Precision.FP16)
"""Formats of half the width."""
AUTOCAST = {"bfloat16": Precision.BF16, "float16": Precision.FP16}
"""Formats by the name of an autocast region's type."""
LEAST_CAPABILITY = {Precision.TF32: (8, 0), Precision.BF16: (8, 0), Precision.FP16: (7, 0)}
"""CUDA compute capabilities from which the units for a format exist (CUDA C++ Programming Guide)."""
LIGHTNING: Mapping[Precision, str] = {
    Precision.FP32: "32-true",
    Precision.TF32: "32-true",
    Precision.BF16: "bf16-mixed",
    Precision.FP16: "16-mixed",
}
"""Names of Lightning's Trainer; TF32 is torch's affair there."""


def is_half(settings: Settings) -> bool:
    """Whether the number format has half the width of fp32."""
    return settings.precision in HALF


KERAS_POLICIES: Mapping[Precision, str] = {
    Precision.FP32: "float32",
    Precision.BF16: "mixed_bfloat16",
    Precision.FP16: "mixed_float16",
}
"""Dtype policies of Keras; TF32 is the engine's affair there."""
OF_DTYPES = {"float32": Precision.FP32, "bfloat16": Precision.BF16, "float16": Precision.FP16}


def _set_policy(value: Any) -> None:
    import keras

    keras.config.set_dtype_policy(KERAS_POLICIES[value])


def _read_policy(model: Any, _: Mapping[str, Any]) -> str | None:
    """The format of most layers with weights; None for an unknown one."""
    dtypes = [str(layer.compute_dtype) for layer in keras_layers(model) if layer.weights]
    usual = max(dtypes, key=dtypes.count, default="")
    return OF_DTYPES[usual].value if usual in OF_DTYPES else None


def keras_layers(model: Any) -> list[Any]:
    """The innermost layers of a Keras model."""
    inner = list(getattr(model, "layers", None) or ())
    return [found for layer in inner for found in keras_layers(layer)] if inner else [model]


def _refused(case: ScriptCase) -> str:
    facts = case.facts
    if facts.keras is not None:
        return "the script sets dtype policies by itself" if facts.keras.sets_policy else ""
    if facts.own_autocast is not None:
        return _why_not_taken_over(facts)
    if facts.own_grad_scaler:
        return "the script has its own GradScaler without autocast"
    if facts.num_root_modules == 0:
        return "no module was seen to which an autocast region could be tied"
    if "format_unseen" in facts.notes:
        return "no product of matrices was seen in the model's call, by which its number format could be checked"
    return ""


def _why_not_taken_over(facts: Any) -> str:
    """Why the format of the script's own autocast regions is the script's affair; empty when trials can change it."""
    if AUTOCAST.get(facts.own_autocast) != facts.precision:
        return f"the script has its own autocast ({facts.own_autocast}), and its model computes in {facts.precision}"
    return ""


def _refused_value(case: ScriptCase, precision: Any) -> str:
    """Under fp16 the loss is scaled, and backward apart from the step."""
    facts = case.facts
    if facts.keras is not None:
        return "Keras has no dtype policy of this name" if precision is Precision.TF32 else ""
    if facts.own_autocast is not None and precision not in HALF:
        return f"the script has its own autocast ({facts.own_autocast})"
    if precision is not Precision.FP16 or facts.precision == Precision.FP16:
        return ""
    return "the script has its own GradScaler" if facts.own_grad_scaler else why_no_single_step(case)


def _dropped(case: SearchCase) -> Iterator[tuple[Value, str]]:
    if not case.is_claimed(Group.PRECISION) and "precision" not in case.mapped:
        yield from _without_a_seam(case)
    if case.is_cpu:
        yield Precision.TF32.value, "a CPU has no TF32 units"
        yield Precision.FP16.value, "fp16 on a CPU is for storage, not for speed"
        return
    if case.facts.recurrent_share > 0.5 and case.own.precision is not Precision.BF16:
        # ATen/cudnn/AutocastRNN.cpp casts to half whatever the region's dtype, so bf16 would not be in force.
        yield Precision.BF16.value, "autocast runs recurrent layers in fp16 on a GPU"
    device = case.device
    for precision, least in LEAST_CAPABILITY.items():
        if device.capability is not None and device.capability < least:
            major, minor = device.capability
            yield precision.value, f"{device.name} has compute capability {major}.{minor}"


def _without_a_seam(case: SearchCase) -> Iterator[tuple[Value, str]]:
    """Drops formats that no seam can put in force over the script's own."""
    own = case.own.precision
    if case.facts.keras is not None:
        yield Precision.TF32.value, _refused_value(case, Precision.TF32)
        return
    yield Precision.FP32.value, f"the script trains in {own.value} by itself"
    if case.facts.has_unsafe_loss and not case.is_cpu and own not in HALF:
        # The region of a step has the loss in it.
        for precision in HALF:
            yield (
                precision.value,
                "autocast refuses binary_cross_entropy on a GPU; binary_cross_entropy_with_logits of what comes "
                "before the sigmoid is safe",
            )
    if own in HALF:
        kept = "the script's weights are" if case.facts.own_autocast is None else "the script's own autocast is"
        yield Precision.TF32.value, f"{kept} in {own.value}"
    reason = _refused_value(case, Precision.FP16)
    if reason:
        yield Precision.FP16.value, reason


def _for_trainer(own: Settings, is_cpu: bool) -> dict[str, Any]:
    values = {"bf16": own.precision is Precision.BF16, "fp16": own.precision is Precision.FP16}
    if not is_cpu and own.precision not in HALF:
        # For fp32 too: with torch_compile the Trainer turns TF32 on by itself.
        values["tf32"] = own.precision is Precision.TF32
    return values


def _for_lightning(own: Settings, _: bool) -> dict[str, Any] | None:
    return None if own.precision is Precision.TF32 else {"trainer": {"precision": LIGHTNING[own.precision]}}


def _for_accelerate(own: Settings, _: bool) -> dict[str, Any] | None:
    mixed = own.precision.value if own.precision in HALF else "no"
    return None if own.precision is Precision.TF32 else {"accelerator": {"mixed_precision": mixed}}


def _for_deepspeed(own: Settings, _: bool) -> dict[str, Any] | None:
    values = {each.value: {"enabled": own.precision is each} for each in HALF}
    return None if own.precision is Precision.TF32 else values


SETTING = Setting(
    name="precision",
    group=Group.PRECISION,
    default=Precision.FP32,
    takes_effect=(
        "an autocast region per step, or the script's own regions; a scaled loss for fp16; in Keras scripts the dtype "
        "policy"
    ),
    frameworks_of_scripts=("torch", "keras"),
    keras=KerasSeams(at_import=_set_policy, read=_read_policy),
    left_alone=(
        "a GradScaler without autocast; own autocast regions of several formats; the device lacks the format; `fp32`, "
        "if the script trains in another format"
    ),
    domain=tuple(member.value for member in Precision),
    own=lambda facts: str(facts.precision),
    refused=_refused,
    refused_value=_refused_value,
    dropped=_dropped,
    memory=Memory.KIND,
    moves_batch=True,
    changes_graph=True,
    decides_training=True,
    features=Features(
        large=lambda own: (1.0 * is_half(own), 1.0 * (own.precision is Precision.TF32)),
        compute=lambda own: (0.3 * (own.precision is Precision.FP16),),
    ),
    arguments=Arguments(
        switches={"amp": Precision.FP16.value, "fp16": Precision.FP16.value, "bf16": Precision.BF16.value},
        choices=("precision", "dtype", "mixed_precision", "amp_dtype"),
        spellings={
            Precision.BF16.value: ("bf16", "bfloat16", "bf16-mixed"),
            Precision.FP16.value: ("fp16", "float16", "16-mixed", "half"),
        },
    ),
    frameworks={
        "hf": _for_trainer,
        "lightning": _for_lightning,
        "accelerate": _for_accelerate,
        "deepspeed": _for_deepspeed,
    },
    own_lines=(OwnLine.AUTOCAST, OwnLine.LOSS, OwnLine.BACKWARD),
    by_hand='call torch.set_float32_matmul_precision("high")',
)
