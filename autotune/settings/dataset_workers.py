"""`dataset_workers`: workers of a `keras.utils.PyDataset`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from autotune.settings.keras_group import of_keras, refused_without
from autotune.settings.setting import Effect, Features, Group, KerasSeams, Memory, OwnLine, Setting, at_most_per_core

FIELDS = ("workers", "use_multiprocessing", "max_queue_size")
"""Properties of a PyDataset read by `fit`."""


why_no_dataset = refused_without("PyDataset", "PyDataset")


def is_py_dataset(data: Any) -> bool:
    """Whether data has the properties of a PyDataset."""
    return all(hasattr(data, name) for name in FIELDS)


def seen(field: str, fit: Mapping[str, Any]) -> Any:
    """A property of the PyDataset in the arguments of `fit`; None for other data."""
    data = fit.get("x")
    return getattr(data, field) if is_py_dataset(data) else None


def seams_of(field: str) -> KerasSeams:
    """Seams for a property of the PyDataset in the arguments of `fit`; other data is left alone."""

    def put(value: Any, fit: dict[str, Any]) -> None:
        data = fit.get("x")
        if is_py_dataset(data):
            setattr(data, field, value)

    return KerasSeams(at_fit=put, read=lambda _, fit: seen(field, fit))


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
    own=of_keras("dataset_workers"),
    refused=why_no_dataset,
    is_tried=at_most_per_core(2),
    cpu_turn=9,
    effect=Effect.LOADER,
    memory=Memory.MORE,
    features=Features(loader=lambda own: (math.log2(own.dataset_workers),)),
    keras=seams_of("workers"),
    own_lines=(OwnLine.KERAS_FIT,),
    by_hand="pass workers to the PyDataset",
)
