"""The channels_last memory format, put on a model of any shape and on its inputs, and read back from its weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from autotune.trial.batches import map_batch
from autotune.trial.roots import weights_of

CONVOLUTIONS = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)
"""Layers that run faster, or slower, in this format."""


def convert_weights(root: torch.nn.Module) -> None:
    """Puts each four-dimensional weight and buffer of a model in the format, one by one.

    The model's own `to` is not called: a task or a wrapper may have one that takes other arguments. Nor is that of
    `torch.nn.Module`, which refuses every model that has five-dimensional weights beside.
    """
    for tensor in (*weights_of([root]), *root.buffers()):
        if _is_convertible(tensor.data):
            tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)


def convert_input(value: Any) -> Any:
    """An argument of a model with its images in the format, wherever they are nested; the same object without any."""
    return map_batch(value, _converted, _same) if _holds_image(value) else value


def is_in_force(roots: Iterable[torch.nn.Module]) -> bool | None:
    """Whether all convolutions of these models have weights in the format; None where no weight could tell.

    A weight of one channel or of one pixel is in both formats at once and tells nothing. Where no layer is a
    convolution of torch's own classes, every four-dimensional weight counts.
    """
    modules = list(roots)
    weights = list(_telling(part for root in modules for part in root.modules() if isinstance(part, CONVOLUTIONS)))
    weights = weights or list(_telling(modules))
    if not weights:
        return None
    return all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)


def _telling(modules: Iterable[torch.nn.Module]) -> Iterator[torch.nn.Parameter]:
    return (weight for weight in weights_of(modules) if weight.dim() == 4 and min(weight.shape[1:]) > 1)


def _is_convertible(tensor: torch.Tensor) -> bool:
    """Whether it is a plain tensor of four dimensions: one that is spread over processes has an order of its own."""
    return type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.dim() == 4


def _holds_image(value: Any) -> bool:
    """Whether a tensor, or one in lists, tuples and dictionaries, is an image; objects of other classes stay closed."""
    if isinstance(value, torch.Tensor):
        return _is_image(value)
    if isinstance(value, (list, tuple, dict)):
        return any(_holds_image(part) for part in (value.values() if isinstance(value, dict) else value))
    return False


def _is_image(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 4 and tensor.is_floating_point() and tensor.layout is torch.strided and not tensor.is_nested


def _converted(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if _is_image(tensor) else tensor


def _same(value: Any) -> Any:
    return value
