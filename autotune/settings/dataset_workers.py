"""`dataset_workers`: workers of a `keras.utils.PyDataset`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autotune.settings.setting import Effect, Features, Group, KerasSeams, Memory, OwnLine, Setting, Value

if TYPE_CHECKING:
    from autotune.settings.cases import ScriptCase, SearchCase

FIELDS = ("workers", "use_multiprocessing", "max_queue_size")
"""Properties of a PyDataset, which `fit` reads."""


def why_no_dataset(case: ScriptCase) -> str:
    """Why `fit` receives no PyDataset; empty when it does."""
    keras = case.facts.keras
    return "" if keras is None or keras.data == "PyDataset" else "fit receives no PyDataset"


def put(field: str, value: Any, fit: dict[str, Any]) -> None:
    """Sets a property of the PyDataset in the arguments of `fit`; does nothing for other data."""
    data = fit.get("x")
    if all(hasattr(data, name) for name in FIELDS):
        setattr(data, field, value)


def seen(field: str, fit: Mapping[str, Any]) -> Any:
    """A property of the PyDataset in the arguments of `fit`; None for other data."""
    data = fit.get("x")
    return getattr(data, field) if all(hasattr(data, name) for name in FIELDS) else None


def _is_tried(case: SearchCase, value: Value) -> bool:
    return int(value) <= max(1, 2 * int(case.cpus))


SETTING = Setting(
    name="dataset_workers",
    group=Group.DATA,
    default=1,
    takes_effect="the PyDataset that `fit` receives, in Keras scripts",
    left_alone="`fit` receives no PyDataset; more workers than twice the cores",
    frameworks_of_scripts=("keras",),
    domain=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32),
    bounds=(1, 4096),
    most_searched=4096,
    own=lambda facts: facts.keras.dataset_workers if facts.keras is not None else None,
    refused=why_no_dataset,
    is_tried=_is_tried,
    cpu_turn=9,
    effect=Effect.LOADER,
    memory=Memory.MORE,
    features=Features(loader=lambda own: (math.log2(own.dataset_workers),)),
    keras=KerasSeams(at_fit=lambda value, fit: put("workers", value, fit), read=lambda _, fit: seen("workers", fit)),
    own_lines=(OwnLine.KERAS_FIT,),
    by_hand="pass workers to the PyDataset",
)
