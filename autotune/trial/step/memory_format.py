"""Puts a model and its inputs in a memory format, and reads the format back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from autotune.trial.step.roots import weights_of
from autotune.trial.torch.batch_structure import map_batch

CONVOLUTIONS = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)
"""Types of layers with special kernels for the format."""


def convert_weights(root: torch.nn.Module, memory_format: torch.memory_format = torch.channels_last) -> None:
    """Puts each four-dimensional weight and buffer of a model in a memory format.

    Tensors are converted singly because the model's own `to` may take different arguments, and because
    `torch.nn.Module.to` refuses a model with five-dimensional weights.
    """
    for tensor in (*weights_of([root]), *root.buffers()):
        if _is_convertible(tensor.data):
            tensor.data = tensor.data.contiguous(memory_format=memory_format)


def align_states(optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """Puts the state of optimizers in the memory formats of their parameters, and drops gradients in another format.

    A fresh process builds both after the conversion of the weights, and in the same format. A converted gradient would
    be no view of its bucket in DistributedDataParallel, so the next backward pass builds the gradient anew.
    """
    for optimizer in optimizers:
        align_state(optimizer)
        for parameter in optimizer.state:
            if not isinstance(parameter, torch.Tensor) or not _is_convertible(parameter.data):
                continue
            if parameter.grad is not None and not parameter.grad.is_contiguous(memory_format=_format_of(parameter)):
                parameter.grad = None


def align_state(optimizer: torch.optim.Optimizer) -> None:
    """Puts the state of an optimizer in the memory formats of its parameters.

    A state that the script has loaded has the format of the checkpoint. The fused kernel on a CPU would combine numbers
    of different places, and the kernel on CUDA would raise an error.
    """
    for parameter, state in optimizer.state.items():
        if not isinstance(parameter, torch.Tensor) or not _is_convertible(parameter.data):
            continue
        layout = _format_of(parameter)
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and _is_convertible(value) and value.shape == parameter.shape:
                state[name] = value.contiguous(memory_format=layout)


def convert_input(value: Any, memory_format: torch.memory_format = torch.channels_last) -> Any:
    """An argument of a model with all images in a memory format, nested images included.

    An argument without an image is returned as the same object.
    """

    def converted(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.contiguous(memory_format=memory_format) if _is_image(tensor) else tensor

    return map_batch(value, converted, _same) if _holds_image(value) else value


def is_in_force(roots: Iterable[torch.nn.Module]) -> bool | None:
    """Whether all convolutions of the models have weights in the format; None without a telling weight.

    A weight of a single channel or a single pixel is in both formats at once and tells nothing. In a model without
    convolution layers every four-dimensional weight counts.
    """
    modules = list(roots)
    weights = list(_telling(part for root in modules for part in root.modules() if isinstance(part, CONVOLUTIONS)))
    weights = weights or list(_telling(modules))
    if not weights:
        return None
    return all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)


def has_some(root: torch.nn.Module) -> bool:
    """Whether some four-dimensional weight of a model lies in NHWC order alone."""
    weights = (weight for weight in weights_of([root]) if weight.dim() == 4)
    return any(w.is_contiguous(memory_format=torch.channels_last) and not w.is_contiguous() for w in weights)


def _telling(modules: Iterable[torch.nn.Module]) -> Iterator[torch.nn.Parameter]:
    return (weight for weight in weights_of(modules) if weight.dim() == 4 and min(weight.shape[1:]) > 1)


def _format_of(weight: torch.Tensor) -> torch.memory_format:
    is_last = weight.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if is_last else torch.contiguous_format


def _is_convertible(tensor: torch.Tensor) -> bool:
    """Whether the tensor is a plain strided tensor of four dimensions; a tensor spread over processes is left alone."""
    return type(tensor) is torch.Tensor and tensor.layout is torch.strided and tensor.dim() == 4


def _holds_image(value: Any) -> bool:
    """Whether the value is an image, or a list, tuple or dictionary with an image; other objects are not searched."""
    if isinstance(value, torch.Tensor):
        return _is_image(value)
    if isinstance(value, (list, tuple, dict)):
        return any(_holds_image(part) for part in (value.values() if isinstance(value, dict) else value))
    return False


def _is_image(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 4 and tensor.is_floating_point() and tensor.layout is torch.strided and not tensor.is_nested


def _same(value: Any) -> Any:
    return value
