"""`tf_gpu_allocator`: the allocator of a GPU's memory below TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from autotune.settings.keras_backend import KerasBackend
from autotune.settings.setting import Group, KerasSeams, Memory, OwnLine, Setting
from autotune.settings.tf_memory_growth import is_on_tensorflow, why_no_engine_of_keras

VARIABLE = "TF_GPU_ALLOCATOR"


class TfGpuAllocator(StrEnum):
    """Values of TF_GPU_ALLOCATOR."""

    DEFAULT = "default"
    """TensorFlow's own: best fit with coalescing."""
    CUDA_MALLOC_ASYNC = "cuda_malloc_async"


def _environment(value: Any, environment: Mapping[str, str]) -> Mapping[str, str]:
    """The variable; TensorFlow takes an empty one for its default."""
    if value is not TfGpuAllocator.DEFAULT:
        return {VARIABLE: value.value}
    return {VARIABLE: ""} if environment.get(VARIABLE) else {}


def _read(_: Any, __: Mapping[str, Any]) -> str | None:
    """The variable's value: TensorFlow names its allocator nowhere."""
    return (os.environ.get(VARIABLE) or TfGpuAllocator.DEFAULT.value) if is_on_tensorflow() else None


SETTING = Setting(
    name="tf_gpu_allocator",
    group=Group.MEMORY,
    default=TfGpuAllocator.DEFAULT,
    takes_effect=f"`{VARIABLE}`, in Keras scripts",
    left_alone="on a CPU; on other engines",
    frameworks_of_scripts=("keras",),
    domain=tuple(member.value for member in TfGpuAllocator),
    needs_accelerator=True,
    is_inert=lambda own: own.keras_backend is not KerasBackend.TENSORFLOW,
    refused=why_no_engine_of_keras,
    is_foreign=lambda case: bool(why_no_engine_of_keras(case)),
    memory=Memory.EITHER,
    moves_batch=True,
    environment=_environment,
    is_set_before_start=True,
    not_live="TensorFlow reads it at the start of the process",
    keras=KerasSeams(read=_read),
    own_lines=(OwnLine.KERAS_VARIABLES,),
    by_hand=f"set {VARIABLE} before Python starts",
)
