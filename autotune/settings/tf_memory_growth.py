"""`tf_memory_growth`: TensorFlow takes a GPU's memory bit by bit, in place of nearly all at its start."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from autotune.settings.keras_backend import KerasBackend
from autotune.settings.setting import Effect, Group, KerasSeams, Memory, OwnLine, Setting

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase, SearchCase

VARIABLE = "TF_FORCE_GPU_ALLOW_GROWTH"
NAME = "tf_memory_growth"


def why_no_engine_of_keras(case: ScriptCase) -> str:
    """Why a setting of Keras' engine cannot be read back; empty for scripts that train by Keras."""
    keras = case.facts.keras
    return "a loop of its own shows no setting" if keras is not None and not keras.version else ""


def gpus_of_tensorflow() -> list[Any]:
    """The GPUs of an imported TensorFlow."""
    return list(sys.modules["tensorflow"].config.list_physical_devices("GPU"))


def is_on_tensorflow() -> bool:
    """Whether TensorFlow is the engine of the imported Keras."""
    import keras

    return bool(keras.backend.backend() == "tensorflow")


def pointless_unless_asked(name: str) -> Callable[[SearchCase], str]:
    """Why a setting that leaves memory to other programs is not searched; empty on a CPU, and where asked for."""

    def pointless(case: SearchCase) -> str:
        if case.is_cpu or name in case.asked:
            return ""
        return "it leaves memory to other programs, and makes nothing faster; ask with --set"

    return pointless


def _environment(value: Any, environment: Mapping[str, str]) -> Mapping[str, str]:
    return {VARIABLE: str(bool(value)).lower()} if value or VARIABLE in environment else {}


def _at_import(value: Any) -> None:
    if is_on_tensorflow():
        config = sys.modules["tensorflow"].config.experimental
        for gpu in gpus_of_tensorflow():
            if bool(config.get_memory_growth(gpu)) != bool(value):  # A GPU in use refuses every call.
                config.set_memory_growth(gpu, bool(value))


def _read(_: Any, __: Mapping[str, Any]) -> bool | None:
    if not is_on_tensorflow():
        return None
    if os.environ.get(VARIABLE) == "true":
        return True  # `get_memory_growth` does not know of the variable.
    get_growth = sys.modules["tensorflow"].config.experimental.get_memory_growth
    return any(bool(get_growth(gpu)) for gpu in gpus_of_tensorflow())


SETTING = Setting(
    name=NAME,
    group=Group.MEMORY,
    default=False,
    takes_effect=f"`{VARIABLE}`, and TensorFlow, in Keras scripts",
    left_alone="on a CPU; on other engines; unless asked for",
    frameworks_of_scripts=("keras",),
    domain=(False, True),
    needs_accelerator=True,
    is_inert=lambda own: own.keras_backend is not KerasBackend.TENSORFLOW,
    refused=why_no_engine_of_keras,
    pointless=pointless_unless_asked(NAME),
    is_foreign=lambda case: bool(why_no_engine_of_keras(case)),
    effect=Effect.NONE,
    memory=Memory.EITHER,
    environment=_environment,
    is_set_before_start=True,
    not_live="TensorFlow reads it at its first use of the device",
    keras=KerasSeams(at_import=_at_import, read=_read),
    own_lines=(OwnLine.KERAS_PREPARE,),
    by_hand=f"set {VARIABLE}=true before Python starts",
    by_hand_off=f"leave out {VARIABLE}",
)
