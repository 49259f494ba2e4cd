"""Repeats the samples of a batch, for the compute-only rate of larger effective batches."""

from __future__ import annotations

from typing import Any

import torch

from autotune.trial.torch.batch_structure import leading_size


class UnrepeatableError(ValueError):
    """A part of the batch does not have an entry per sample, and a larger batch cannot be built."""


def repeated(batch: Any, factor: int) -> Any:
    """The batch with all samples repeated `factor` times; the batch itself for a factor of 1.

    Raises:
        UnrepeatableError: A part does not have an entry per sample, as in graphs or packed sequences.
    """
    size = leading_size(batch)
    if factor == 1:
        return batch
    if size is None:
        raise UnrepeatableError("the batch holds no tensor")
    return _repeated(batch, factor, size)


def _repeated(value: Any, factor: int, size: int) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dim() == 0 or value.shape[0] != size or value.is_sparse:
            raise UnrepeatableError(f"a tensor of shape {tuple(value.shape)} is not of {size} samples")
        larger = torch.cat([value] * factor)
        return larger.pin_memory() if value.device.type == "cpu" and value.is_pinned() else larger
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_repeated(item, factor, size) for item in value))
    if type(value) in (list, tuple):
        if len(value) == size and not any(isinstance(item, torch.Tensor) for item in value):
            return value * factor  # One name or other value without tensors per sample.
        return type(value)(_repeated(item, factor, size) for item in value)
    if type(value) is dict:
        return {name: _repeated(item, factor, size) for name, item in value.items()}
    if value is None or isinstance(value, (str, bool)):
        return value
    raise UnrepeatableError(f"a {type(value).__name__} is not of samples")
