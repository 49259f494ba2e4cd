"""`engine_memory_fraction`: the share of a GPU's memory for Keras' engine, at most."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from typing import Any

from autotune.settings.setting import Effect, Group, KerasSeams, Memory, OwnLine, Setting
from autotune.settings.tf_memory_growth import gpus_of_tensorflow, pointless_unless_asked, why_no_engine_of_keras

VARIABLE = "XLA_PYTHON_CLIENT_MEM_FRACTION"
NAME = "engine_memory_fraction"
MIB = 1 << 20
DIGITS = 2
"""Of a share read back: engines round limits to whole MiB."""


def _environment(value: Any, _: Mapping[str, str]) -> Mapping[str, str]:
    return {VARIABLE: f"{value:g}"} if value < 1.0 else {}


def total_bytes() -> int:
    """Memory of the first visible GPU by CUDA's driver, in bytes; 0 without a driver or a GPU."""
    total, device = ctypes.c_size_t(), ctypes.c_int()
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        calls = (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0))
        return 0 if any(calls) or cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device) else int(total.value)
    except (OSError, AttributeError):
        return 0


def _at_import(value: Any) -> None:
    """JAX has read the variable; the other engines take the limit by a call, before their first use of the device."""
    import keras

    engine = keras.backend.backend()
    if value == 1.0:
        return
    if engine == "jax":
        os.environ[VARIABLE] = f"{value:g}"  # JAX reads the variable at its first use of the device.
    if engine == "torch" and sys.modules["torch"].cuda.is_available():
        sys.modules["torch"].cuda.set_per_process_memory_fraction(float(value))
    elif engine == "tensorflow":
        config = sys.modules["tensorflow"].config
        limit = config.LogicalDeviceConfiguration(memory_limit=int(value * total_bytes() / MIB))
        for gpu in gpus_of_tensorflow():
            config.set_logical_device_configuration(gpu, [limit])


def _read(_: Any, __: Mapping[str, Any]) -> float | None:
    """The share in force; None where the engine tells no limit."""
    import keras

    engine, total = keras.backend.backend(), total_bytes()
    if not total:
        return None
    if engine == "tensorflow":
        gpus = gpus_of_tensorflow()
        if not gpus:
            return None
        limits = sys.modules["tensorflow"].config.get_logical_device_configuration(gpus[0]) or ()
        asked = next((limit.memory_limit for limit in limits if limit.memory_limit), None)
        return 1.0 if asked is None else round(asked * MIB / total, DIGITS)
    if engine == "jax":
        if VARIABLE not in os.environ:
            return None  # JAX's own share is no limit that a script has set.
        limit = (sys.modules["jax"].local_devices()[0].memory_stats() or {}).get("bytes_limit")
        return None if limit is None else round(limit / total, DIGITS)
    return _read_of_torch(sys.modules["torch"].cuda)


def _read_of_torch(cuda: Any) -> float | None:
    """The share by torch 2.8 and later."""
    get_fraction = getattr(cuda, "get_per_process_memory_fraction", None)
    return round(float(get_fraction()), DIGITS) if get_fraction is not None and cuda.is_available() else None


SETTING = Setting(
    name=NAME,
    group=Group.MEMORY,
    default=1.0,
    takes_effect=f"`{VARIABLE}`, TensorFlow's `memory_limit` and torch's share, in Keras scripts",
    left_alone="on a CPU; unless asked for",
    frameworks_of_scripts=("keras",),
    domain=(1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1),
    needs_accelerator=True,
    refused=why_no_engine_of_keras,
    pointless=pointless_unless_asked(NAME),
    is_foreign=lambda case: bool(why_no_engine_of_keras(case)),
    effect=Effect.NONE,
    memory=Memory.EITHER,
    environment=_environment,
    is_set_before_start=True,
    not_live="the engines read it at their first use of the device",
    read_tolerance=0.6 * 10**-DIGITS,
    keras=KerasSeams(at_import=_at_import, read=_read),
    own_lines=(OwnLine.KERAS_PREPARE,),
    by_hand=f"set {VARIABLE} before Python starts; on TensorFlow use LogicalDeviceConfiguration(memory_limit=...)",
)
