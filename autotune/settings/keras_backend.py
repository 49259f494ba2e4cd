"""`keras_backend`: the engine below Keras."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from autotune.settings.setting import Features, Group, KerasSeams, Memory, OwnLine, Setting, Value, chosen

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase, SearchCase

VARIABLE = "KERAS_BACKEND"
LONGEST_START_S = 60.0
"""Imports and first compilation of another engine."""


class KerasBackend(StrEnum):
    """Engines of Keras 3, by Keras' names."""

    NONE = "none"
    """The script does not train by Keras."""
    TENSORFLOW = "tensorflow"
    JAX = "jax"
    TORCH = "torch"


def _own(facts: Any) -> str | None:
    """The engine of a Keras script; None for a loop without Keras, and for engines without training."""
    is_known = facts.keras is not None and facts.keras.version and facts.keras.engine in list(KerasBackend)
    return str(facts.keras.engine) if is_known else None


def _refused(case: ScriptCase) -> str:
    keras = case.facts.keras
    if keras is None or not keras.script_engines:
        return ""
    named = " and ".join(keras.script_engines)
    return f"the script itself imports {named}, and another engine could not use what it makes"


def _dropped(case: SearchCase) -> Iterator[tuple[Value, str]]:
    keras = case.facts.keras
    for engine in (KerasBackend.TENSORFLOW, KerasBackend.JAX, KerasBackend.TORCH):
        if keras is not None and engine.value not in keras.installed_engines:
            yield engine.value, f"the script's Python has no {engine.value}"


def _is_tried(case: SearchCase, value: Value) -> bool:
    return value != KerasBackend.NONE.value


def _environment(value: Any, _: Mapping[str, str]) -> Mapping[str, str]:
    return {} if value is KerasBackend.NONE else {VARIABLE: value.value}


def _read(_: Any, __: Mapping[str, Any]) -> str:
    import keras

    return str(keras.backend.backend())


SETTING = Setting(
    name="keras_backend",
    group=Group.KERNELS,
    default=KerasBackend.NONE,
    takes_effect=f"`{VARIABLE}`, in Keras scripts",
    left_alone="the script imports an engine itself; the engine is not installed",
    frameworks_of_scripts=("keras",),
    domain=tuple(member.value for member in KerasBackend),
    own=_own,
    refused=_refused,
    dropped=_dropped,
    is_tried=_is_tried,
    memory=Memory.KIND,
    moves_batch=True,
    features=Features(large=chosen("keras_backend", KerasBackend.JAX, KerasBackend.TORCH)),
    environment=_environment,
    is_set_before_start=True,
    not_live="Keras reads it at its import",
    longest_build_s=lambda own: 0.0 if own.keras_backend is KerasBackend.NONE else LONGEST_START_S,
    keras=KerasSeams(read=_read),
    own_lines=(OwnLine.KERAS_BACKEND,),
    by_hand=f"set {VARIABLE} before Python starts",
)
