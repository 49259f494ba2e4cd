"""`engine_threads`: threads of an operation in the engine below Keras."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.settings.setting import Features, Group, KerasSeams, OwnLine, Setting, at_most_per_core

VARIABLES = ("TF_NUM_INTRAOP_THREADS", "NPROC", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables of TensorFlow, of XLA on a CPU, and of torch; oneDNN below TensorFlow reads the third as well."""
XLA_POOL = "tf_XLAEigen"
"""Name of the threads of XLA's pool on a CPU."""


def _environment(value: Any, _: Mapping[str, str]) -> Mapping[str, str]:
    return dict.fromkeys(VARIABLES, str(value)) if value else {}


def _at_import(value: Any) -> None:
    """Sets the number in TensorFlow, before the first operation; JAX and torch have read a variable at their start."""
    import keras

    if value and keras.backend.backend() == "tensorflow":
        sys.modules["tensorflow"].config.threading.set_intra_op_parallelism_threads(value)


def _read(_: Any, __: Mapping[str, Any]) -> int | None:
    import keras

    engine = keras.backend.backend()
    if engine == "tensorflow":
        return int(sys.modules["tensorflow"].config.threading.get_intra_op_parallelism_threads())
    if not os.environ.get(VARIABLES[1], ""):
        return 0
    if engine == "torch":
        return int(sys.modules["torch"].get_num_threads())
    return _num_threads(XLA_POOL) or None


def _num_threads(name: str) -> int:
    """Number of this process's threads with a name, by the kernel's list."""
    names = []
    for path in Path("/proc/self/task").glob("*/comm"):
        try:
            names.append(path.read_text().strip())
        except OSError:
            continue
    return names.count(name)


SETTING = Setting(
    name="engine_threads",
    group=Group.THREADS,
    default=0,
    takes_effect="the trial's environment, and TensorFlow, in Keras scripts",
    left_alone="more threads than cores",
    frameworks_of_scripts=("keras",),
    domain=(0, 1, 2, 4, 8, 16, 32, 64),
    bounds=(0, 4096),
    most_searched=4096,
    is_tried=at_most_per_core(1),
    cpu_turn=6,
    helps_beside_load=lambda value, own: bool(value) and (not own or value < own),
    features=Features(compute=lambda own: (math.log2(1 + own.engine_threads), 1.0 * (own.engine_threads == 0))),
    environment=_environment,
    is_set_before_start=True,
    not_live="the engines read it at the start of the process",
    keras=KerasSeams(at_import=_at_import, read=_read),
    own_lines=(OwnLine.KERAS_PREPARE,),
    by_hand=f"set {', '.join(VARIABLES[:3])} before Python starts",
)
