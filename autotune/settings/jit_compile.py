"""`jit_compile`: a Keras model's step is compiled by XLA, or by torch.compile on the torch engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from autotune.settings.keras_backend import KerasBackend
from autotune.settings.keras_group import of_keras
from autotune.settings.setting import Features, Group, KerasSeams, Memory, OwnLine, Setting, Value, chosen

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase, SearchCase

LONGEST_BUILD_S = 120.0
"""XLA compiles a large model for a minute or two on a busy host."""
MARK = "_autotune_jit_compile"
"""Attribute of a compiled model: the argument given to `compile`."""


class JitCompile(StrEnum):
    """The argument `jit_compile` of `Model.compile`."""

    AUTO = "auto"
    """Keras decides: XLA on JAX; on TensorFlow beside an accelerator, where the model supports XLA; never on torch."""
    ON = "on"
    OFF = "off"


def argument(value: JitCompile) -> bool | str:
    """The argument of `Model.compile`."""
    return "auto" if value is JitCompile.AUTO else value is JitCompile.ON


def as_value(given: object) -> JitCompile:
    """The setting, by the argument of `Model.compile`."""
    return JitCompile.AUTO if given == "auto" else JitCompile.ON if given else JitCompile.OFF


def _refused(case: ScriptCase) -> str:
    keras = case.facts.keras
    return "the script runs its steps eagerly" if keras is not None and keras.runs_eagerly else ""


def _dropped(case: SearchCase) -> Iterator[tuple[Value, str]]:
    if case.own.keras_backend is KerasBackend.TORCH and case.is_cpu and "jit_compile" not in case.asked:
        yield JitCompile.ON.value, "on a CPU torch.compile builds for minutes with a C++ compiler; ask with --set"


def _at_compile(value: Any, arguments: dict[str, Any]) -> None:
    arguments["jit_compile"] = argument(value)


def _read(model: Any, _: Mapping[str, Any]) -> str:
    if getattr(model, MARK, None) == "auto":
        return JitCompile.AUTO.value
    return as_value(bool(model.jit_compile)).value


SETTING = Setting(
    name="jit_compile",
    group=Group.KERNELS,
    default=JitCompile.AUTO,
    takes_effect="`Model.compile`, in Keras scripts",
    left_alone="the script runs eagerly; on the torch engine without an accelerator, unless asked for",
    frameworks_of_scripts=("keras",),
    domain=tuple(member.value for member in JitCompile),
    own=of_keras("jit_compile"),
    refused=_refused,
    dropped=_dropped,
    is_inert=lambda own: own.keras_backend in (KerasBackend.NONE, KerasBackend.TORCH),
    cpu_turn=3,
    memory=Memory.EITHER,
    moves_batch=True,
    features=Features(large=chosen("jit_compile", JitCompile.ON, JitCompile.OFF)),
    longest_build_s=lambda own: LONGEST_BUILD_S if own.jit_compile is JitCompile.ON else 0.0,
    keras=KerasSeams(at_compile=_at_compile, read=_read),
    own_lines=(OwnLine.KERAS_COMPILE,),
    by_hand="pass it to Model.compile",
)
