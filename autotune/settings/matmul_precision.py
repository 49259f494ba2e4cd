"""`matmul_precision`: accuracy of fp32 matrix products, as in torch.set_float32_matmul_precision."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from autotune.settings.precision import Precision
from autotune.settings.setting import Features, Group, OwnLine, Setting, Value, chosen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autotune.settings.cases import SearchCase
    from autotune.settings.data_type import Settings


class MatmulPrecision(StrEnum):
    """Accuracy of products of fp32 matrices; weights and results stay in fp32."""

    HIGHEST = "highest"
    HIGH = "high"
    """TF32 units, where the processor has these units."""
    MEDIUM = "medium"
    """Sums of products in bf16. Measured on a Xeon with avx512_bf16: a product of 1024 rows takes 0.77 of the time."""


def _is_inert(own: Settings) -> bool:
    """Whether `precision` decides: `precision=tf32` is `high`, and autocast leaves no products in fp32."""
    return own.precision is not Precision.FP32


def _pointless(case: SearchCase) -> str:
    return "" if case.is_cpu else "on CUDA precision=tf32 is high, and medium is the same"


def _own(facts: Any) -> str | None:
    """The script's own value on a CPU; on CUDA the script's `precision` tells it."""
    return str(facts.own_matmul_precision) if facts.device == "cpu" else None


def _dropped(case: SearchCase) -> Iterator[tuple[Value, str]]:
    yield MatmulPrecision.HIGH.value, "a CPU has no TF32 units"
    if case.own.matmul_precision is MatmulPrecision.HIGH:
        yield MatmulPrecision.HIGHEST.value, "on a CPU it is the same as high, your own"


def _write(value: Any) -> None:
    import torch

    torch.set_float32_matmul_precision(str(value))


def _read() -> str | None:
    """The value in force; None where the script mixes the older and the newer switches of torch."""
    import torch

    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


SETTING = Setting(
    name="matmul_precision",
    group=Group.KERNELS,
    default=MatmulPrecision.HIGHEST,
    takes_effect="once, before the first step",
    left_alone="on CUDA, where `precision=tf32` is `high`; beside another `precision` than `fp32`",
    domain=tuple(member.value for member in MatmulPrecision),
    is_inert=_is_inert,
    own=_own,
    pointless=_pointless,
    dropped=_dropped,
    cpu_turn=3,
    changes_graph=True,
    decides_training=True,
    features=Features(compute=chosen("matmul_precision", MatmulPrecision.MEDIUM)),
    write=_write,
    is_written_again=True,
    read=_read,
    own_lines=(OwnLine.PREPARE,),
    by_hand="call torch.set_float32_matmul_precision",
)
