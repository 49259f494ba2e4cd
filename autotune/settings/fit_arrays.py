"""Arrays in the arguments of `keras.Model.fit`: their samples, and the batch that Keras cuts from them."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from autotune.settings.dataset_workers import is_py_dataset

USUAL_OF_KERAS = 32
"""Samples of a batch that `fit` cuts from arrays when neither a size nor a number of steps is given."""


def leaves(value: Any) -> Iterable[Any]:
    """The arrays in nested tuples, lists and mappings."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, (tuple, list)):
        for inner in value:
            yield from leaves(inner)
    elif value is not None:
        yield value


def num_samples(batch: Any) -> int:
    """First dimension of the first array in a batch; 1 for a batch without arrays."""
    for leaf in leaves(batch):
        shape = getattr(leaf, "shape", None)
        if shape is not None and len(shape):
            return int(shape[0]) if shape[0] is not None else 1
    return 1


def is_in_batches(data: Any) -> bool:
    """Whether data gives batches of its own: of tf.data, a PyDataset, a torch DataLoader or a generator."""
    if hasattr(data, "element_spec") or is_py_dataset(data) or hasattr(data, "__next__") or hasattr(data, "send"):
        return True
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(data, torch.utils.data.DataLoader)


def are_arrays(data: Any) -> bool:
    """Whether `fit` cuts batches from the data."""
    arrays = [] if is_in_batches(data) else list(leaves(data))
    return bool(arrays) and all(len(getattr(array, "shape", ())) > 0 for array in arrays)


def samples_in(fit: Mapping[str, Any]) -> int | None:
    """Samples of an epoch over arrays, without the share for validation; None without arrays."""
    if not are_arrays(fit.get("x")):
        return None
    total = num_samples(fit["x"])
    share = float(fit.get("validation_split") or 0.0) if fit.get("validation_data") is None else 0.0
    return math.floor(total * (1.0 - share))


def batch_size_in(fit: Mapping[str, Any]) -> int | None:
    """Samples of a batch cut from arrays by `fit`, as Keras decides; None for data in batches."""
    total = samples_in(fit)
    if total is None:
        return None
    if fit.get("batch_size"):
        return int(fit["batch_size"])
    return math.ceil(total / fit["steps_per_epoch"]) if fit.get("steps_per_epoch") else USUAL_OF_KERAS
