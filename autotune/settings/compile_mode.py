"""`compile_mode`: how much torch.compile builds, and whether CUDA graphs replay the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from autotune.settings.release import is_before
from autotune.settings.setting import Features, Group, Memory, OwnLine, Setting, Value

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase, SearchCase
    from autotune.settings.data_type import Settings


class CompileMode(StrEnum):
    """Modes of torch.compile by torch's names, and a mode of ours."""

    DEFAULT = "default"
    REGIONAL = "regional"
    """The repeated blocks of the model alone: a single build serves all blocks of a shape."""
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
MOST_BLOCK_SHAPES = 4
"""Most shapes of repeated blocks for a build of blocks alone. ResNet-50 has 8, and its blocks took over 98 s to build
on an H100, where the whole model took 36 to 41 s."""
LEAST_TORCH_OF_REGIONS = (2, 5)
"""Since this release the compiler enters modules by default; before, a compiled block met itself as an opaque call."""
UNCOMPILED = ""
"""Build of settings without compilation."""
BUILD_S = {
    UNCOMPILED: 0.0,
    CompileMode.DEFAULT.value: 35.0,
    CompileMode.REGIONAL.value: 8.0,
    CompileMode.REDUCE_OVERHEAD.value: 40.0,
    CompileMode.MAX_AUTOTUNE.value: 350.0,
    CompileMode.MAX_AUTOTUNE_NO_CUDAGRAPHS.value: 350.0,
}
"""Expected seconds of the first build, before any was measured. On an H100 nanoGPT took 37 s by default and 6 s by
regions. GPT-2 of 124 million parameters took 340 s with timed kernels by nanoGPT and 390 s by the HF Trainer."""


def build_of(settings: Settings | None) -> str:
    """The build that a trial of these settings pays for: a key of `BUILD_S`; without settings, none."""
    return UNCOMPILED if settings is None or not settings.compile else settings.compile_mode.value


def _refused_value(case: ScriptCase, mode: Any) -> str:
    if mode is CompileMode.REGIONAL and case.facts.num_repeated_blocks == 0:
        return "the model has no block that repeats"
    if mode is CompileMode.REGIONAL and case.facts.num_block_shapes > MOST_BLOCK_SHAPES:
        return f"the repeated blocks have {case.facts.num_block_shapes} different shapes, and each is built apart"
    if mode is CompileMode.REGIONAL and is_before(case.facts.torch_version, LEAST_TORCH_OF_REGIONS):
        return f"with torch {case.facts.torch_version} each block is built apart, or calls itself without end"
    return _why_no_graphs(case.facts) if mode in GRAPHS else ""


def sizes_vary(facts: Any) -> bool:
    """Whether batches, or the inputs that the script makes of batches, differ in size, beyond a smaller last batch."""
    by_loader = facts.loader is not None and facts.loader.batches_vary
    return bool(by_loader or facts.foreign_batches_vary or "varying_inputs" in facts.notes)


def _why_no_graphs(facts: Any) -> str:
    """Why CUDA graphs cannot run the model; empty when possible."""
    if sizes_vary(facts):
        return "batches differ in size, and a CUDA graph holds one size"
    if "kept_outputs" in facts.notes:
        return "the script keeps the model's outputs beyond a step, and a CUDA graph overwrites its outputs"
    return ""


def _pointless(case: SearchCase) -> str:
    if case.facts.own_compile:
        return "the script compiles by itself"
    if case.is_cpu and "compile_mode" not in case.asked:
        return "on a CPU there are no CUDA graphs, and timing kernels takes many minutes; ask with --set"
    return ""


def _dropped(case: SearchCase) -> Iterator[tuple[Value, str]]:
    for mode in CompileMode:
        reason = _refused_value(case, mode)
        if reason:
            yield mode.value, reason


def _features(own: Settings) -> tuple[float, ...]:
    mode = own.compile_mode if own.compile else None
    return 1.0 * (mode in TIMED), 1.0 * (mode is CompileMode.REGIONAL)


def _uses_graphs(own: Settings) -> tuple[float, ...]:
    """CUDA graphs may double or triple the rate of a job that waits for the host's launches."""
    return (1.0 * (own.compile and own.compile_mode in GRAPHS),)


def _for_trainer(own: Settings, _: bool) -> dict[str, Any] | None:
    if own.compile and own.compile_mode is CompileMode.REGIONAL:
        return None
    is_changed = own.compile and own.compile_mode is not CompileMode.DEFAULT
    return {"torch_compile_mode": own.compile_mode.value} if is_changed else {}


def _for_accelerate(own: Settings, _: bool) -> dict[str, Any]:
    """Arguments of Accelerate's TorchDynamoPlugin."""
    if not own.compile or own.compile_mode is CompileMode.DEFAULT:
        return {}
    if own.compile_mode is CompileMode.REGIONAL:
        return {"dynamo_plugin": {"use_regional_compilation": True}}
    return {"dynamo_plugin": {"mode": own.compile_mode.value}}


SETTING = Setting(
    name="compile_mode",
    group=Group.KERNELS,
    default=CompileMode.DEFAULT,
    takes_effect="once, before the first step",
    left_alone=(
        "without `compile`; on a CPU, unless asked for; CUDA graphs where batches differ in size, outputs are kept or "
        "gradients add up; `regional` without a block that repeats, or with blocks of many shapes"
    ),
    domain=tuple(member.value for member in CompileMode),
    is_inert=lambda own: not own.compile,
    refused_value=_refused_value,
    pointless=_pointless,
    dropped=_dropped,
    memory=Memory.EITHER,
    changes_graph=True,
    features=Features(large=_uses_graphs, compute=_features),
    frameworks={"hf": _for_trainer, "accelerate": _for_accelerate},
    longest_build_s=lambda own: LONGEST_TIMING_S if own.compile and own.compile_mode in TIMED else 0.0,
    own_lines=(OwnLine.PREPARE,),
    by_hand="call model.compile(mode=...)",
)
