"""`steps_per_execution`: batches of one call of a Keras model's compiled step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autotune.settings.keras_backend import KerasBackend
from autotune.settings.keras_group import of_keras
from autotune.settings.setting import Features, Group, KerasSeams, OwnLine, Setting, Value

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase, SearchCase

LEAST_CALLS = 4
"""Fewest calls of an epoch: the last call of an epoch may hold fewer batches."""


def _refused(case: ScriptCase) -> str:
    keras = case.facts.keras
    if keras is not None and keras.has_batch_callbacks:
        return "a callback of the script's own acts after every batch, and would act less often"
    return "the script trains batch by batch" if keras is not None and keras.trains_on_batch else ""


def _is_tried(case: SearchCase, value: Value) -> bool:
    loader = case.facts.loader
    num_batches = loader.num_batches if loader is not None else None
    return num_batches is None or int(value) * LEAST_CALLS <= num_batches


def _at_compile(value: Any, arguments: dict[str, Any]) -> None:
    arguments["steps_per_execution"] = value


def _read(model: Any, _: Mapping[str, Any]) -> int:
    return int(model.steps_per_execution)


SETTING = Setting(
    name="steps_per_execution",
    group=Group.KERNELS,
    default=1,
    takes_effect="`Model.compile`, in Keras scripts",
    left_alone="a callback acts after every batch; on the torch engine; `train_on_batch`",
    frameworks_of_scripts=("keras",),
    domain=(1, 2, 4, 8, 16, 32, 64),
    bounds=(1, 1 << 16),
    most_searched=1 << 16,
    own=of_keras("steps_per_execution"),
    refused=_refused,
    is_tried=_is_tried,
    is_inert=lambda own: own.keras_backend in (KerasBackend.NONE, KerasBackend.TORCH),
    cpu_turn=4,
    features=Features(compute=lambda own: (0.5 * math.log2(own.steps_per_execution),)),
    keras=KerasSeams(at_compile=_at_compile, read=_read),
    own_lines=(OwnLine.KERAS_COMPILE,),
    by_hand="pass it to Model.compile",
)
