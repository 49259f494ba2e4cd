"""`compile_mode`: how much torch.compile builds, and whether CUDA graphs replay the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from autotune.settings.setting import Features, Group, Memory, OwnLine, Setting, Value

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase, SearchCase
    from autotune.settings.data_type import Settings


class CompileMode(StrEnum):
    """Modes of torch.compile, by torch's names."""

    DEFAULT = "default"
    REDUCE_OVERHEAD = "reduce-overhead"
    """CUDA graphs: the host launches a step by a single call."""
    MAX_AUTOTUNE = "max-autotune"
    """CUDA graphs, and kernels chosen by timing."""
    MAX_AUTOTUNE_NO_CUDAGRAPHS = "max-autotune-no-cudagraphs"
    """Kernels chosen by timing."""


GRAPHS = (CompileMode.REDUCE_OVERHEAD, CompileMode.MAX_AUTOTUNE)
"""Modes with CUDA graphs. A graph holds one size of the batch, and overwrites its outputs in the next step."""
TIMED = (CompileMode.MAX_AUTOTUNE, CompileMode.MAX_AUTOTUNE_NO_CUDAGRAPHS)
LONGEST_TIMING_S = 600.0
"""The first matrix product takes 24 s and each further shape 4 s on an H200 beside 7 cores; models have dozens."""


def _refused_value(case: ScriptCase, mode: Any) -> str:
    loader = case.facts.loader
    if mode not in GRAPHS or loader is None or not loader.batches_vary:
        return ""
    return "batches differ in size, and a CUDA graph holds one size"


def _pointless(case: SearchCase) -> str:
    if case.facts.own_compile:
        return "the script compiles by itself"
    if case.is_cpu and "compile_mode" not in case.asked:
        return "on a CPU there are no CUDA graphs, and timing kernels takes many minutes; ask with --set"
    return ""


def _dropped(case: SearchCase) -> Iterator[tuple[Value, str]]:
    for mode in GRAPHS:
        reason = _refused_value(case, mode)
        if reason:
            yield mode.value, reason


def _features(own: Settings) -> tuple[float, ...]:
    return 1.0 * (own.compile and own.compile_mode in GRAPHS), 1.0 * (own.compile and own.compile_mode in TIMED)


def _for_trainer(own: Settings, _: bool) -> dict[str, Any]:
    is_changed = own.compile and own.compile_mode is not CompileMode.DEFAULT
    return {"torch_compile_mode": own.compile_mode.value} if is_changed else {}


SETTING = Setting(
    name="compile_mode",
    group=Group.KERNELS,
    default=CompileMode.DEFAULT,
    takes_effect="once, before the first step",
    left_alone="without `compile`; on a CPU, unless asked for; modes with CUDA graphs where batches differ in size",
    domain=tuple(member.value for member in CompileMode),
    is_inert=lambda own: not own.compile,
    refused_value=_refused_value,
    pointless=_pointless,
    dropped=_dropped,
    memory=Memory.EITHER,
    changes_graph=True,
    features=Features(compute=_features),
    frameworks={"hf": _for_trainer},
    longest_build_s=lambda own: LONGEST_TIMING_S if own.compile and own.compile_mode in TIMED else 0.0,
    own_lines=(OwnLine.PREPARE,),
    by_hand="call model.compile(mode=...)",
)
