"""`cudnn_benchmark`: cuDNN times its algorithms and keeps the fastest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.settings.compile_mode import sizes_vary
from autotune.settings.setting import Features, Group, Memory, OwnLine, PeakFactor, Setting, UsualGain, switched

if TYPE_CHECKING:
    from autotune.settings.cases import SearchCase
    from autotune.settings.data_type import Settings

SEARCHED_UNDER = (
    "precision", "matmul_precision", "channels_last", "cudnn_benchmark", "cudnn_benchmark_limit", "compile",
    "batch_size",
)  # fmt: skip
"""Settings behind cuDNN's choice of kernels. After a change of a setting here, cuDNN times every size again."""


def searched_under(settings: Settings | None) -> tuple[Any, ...]:
    """The values of `SEARCHED_UNDER`; empty without settings, and with `cudnn_benchmark` off.

    With equal values a process searches once for each size of the model's inputs.
    """
    if settings is None or not settings.cudnn_benchmark:
        return ()
    return tuple(getattr(settings, name) for name in SEARCHED_UNDER)


def _pointless(case: SearchCase) -> str:
    if case.is_claimed(Group.KERNELS):
        return ""
    if "no_convolution" in case.facts.notes:
        return "the model has no convolution"
    if "deterministic" in case.facts.notes:
        return "the script asks for deterministic kernels, and its search chooses others from run to run"
    is_new = "cudnn_benchmark" not in case.asked and not case.facts.own_cudnn_benchmark
    if is_new and sizes_vary(case.facts) and "recurring_inputs" not in case.facts.notes:
        return "inputs differ in size, and cuDNN times its algorithms again for every size; ask with --set"
    return ""


def _write(is_on: Any) -> None:
    import torch

    torch.backends.cudnn.benchmark = is_on


def _read() -> bool:
    import torch

    return bool(torch.backends.cudnn.benchmark)


SETTING = Setting(
    name="cudnn_benchmark",
    group=Group.KERNELS,
    default=False,
    takes_effect="once, before the first step",
    left_alone="on a CPU; no convolution; deterministic kernels; inputs of many sizes, unless asked for",
    domain=(False, True),
    needs_accelerator=True,
    own=lambda facts: bool(facts.own_cudnn_benchmark),
    pointless=_pointless,
    usual=UsualGain(value=True, is_small=True, slows_start=True),
    memory=Memory.MORE,
    peak_factor=PeakFactor(mean=0.025, deviation=0.02),  # cuDNN's workspaces
    moves_batch=True,
    features=Features(compute=switched("cudnn_benchmark")),
    write=_write,
    is_written_again=True,
    read=_read,
    frameworks={"lightning": lambda own, is_cpu: {} if is_cpu else {"trainer": {"benchmark": own.cudnn_benchmark}}},
    own_lines=(OwnLine.PREPARE,),
    by_hand="set torch.backends.cudnn.benchmark",
)
