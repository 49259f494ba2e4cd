"""`xla_flags`: options of XLA's compiler for a GPU."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from autotune.settings.keras_backend import KerasBackend
from autotune.settings.setting import Features, Group, KerasSeams, Memory, OwnLine, Setting, chosen
from autotune.settings.tf_memory_growth import why_no_engine_of_keras

VARIABLE = "XLA_FLAGS"


class XlaFlags(StrEnum):
    """Sets of options for XLA."""

    DEFAULT = "default"
    LATENCY_HIDING = "latency_hiding"
    """Communication and copies run beside computation."""
    NO_TRITON_GEMM = "no_triton_gemm"
    """Matrix products by cuBLAS alone."""


OPTIONS: Mapping[XlaFlags, str] = {
    XlaFlags.LATENCY_HIDING: "--xla_gpu_enable_latency_hiding_scheduler=true",
    XlaFlags.NO_TRITON_GEMM: "--xla_gpu_enable_triton_gemm=false",
}


def _environment(value: Any, environment: Mapping[str, str]) -> Mapping[str, str]:
    """The user's other options, and the option of the value."""
    given = environment.get(VARIABLE, "").split()
    wanted = [option for option in given if option not in OPTIONS.values()]
    wanted += [OPTIONS[value]] if value is not XlaFlags.DEFAULT else []
    return {VARIABLE: " ".join(wanted)} if wanted != given else {}


def _read(_: Any, __: Mapping[str, Any]) -> str:
    """The value by the variable: XLA tells its options nowhere."""
    given = os.environ.get(VARIABLE, "").split()
    return next((value.value for value, option in OPTIONS.items() if option in given), XlaFlags.DEFAULT.value)


SETTING = Setting(
    name="xla_flags",
    group=Group.KERNELS,
    default=XlaFlags.DEFAULT,
    takes_effect=f"`{VARIABLE}`, in Keras scripts",
    left_alone="on a CPU; on the torch engine",
    frameworks_of_scripts=("keras",),
    domain=tuple(member.value for member in XlaFlags),
    needs_accelerator=True,
    is_inert=lambda own: own.keras_backend in (KerasBackend.NONE, KerasBackend.TORCH),
    refused=why_no_engine_of_keras,
    is_foreign=lambda case: bool(why_no_engine_of_keras(case)),
    memory=Memory.EITHER,
    moves_batch=True,
    features=Features(compute=chosen("xla_flags", *OPTIONS)),
    environment=_environment,
    is_set_before_start=True,
    not_live="XLA reads it at the start of the process",
    keras=KerasSeams(read=_read),
    own_lines=(OwnLine.KERAS_VARIABLES,),
    by_hand=f"add the option to {VARIABLE} before Python starts",
)
