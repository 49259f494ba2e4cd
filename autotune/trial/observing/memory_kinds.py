"""Measures the bytes that training keeps, by kind, with the tensors that autograd saves for a backward pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from autotune.model.observation import MemoryKinds


class ActivationWatch:
    """Adds up the tensors that autograd saves between two steps; begun and ended in the training thread."""

    def __init__(self, known: Iterable[torch.Tensor]) -> None:
        self._known = {_storage_of(tensor) for tensor in known}
        self._held: dict[int, int] = {}
        self._hooks: Any = torch.autograd.graph.saved_tensors_hooks(self._note, lambda saved: saved)

    def begin(self) -> None:
        """Begins to note saved tensors."""
        self._hooks.__enter__()

    def end(self) -> int:
        """Ends the notes, and returns the total bytes of the saved tensors."""
        self._hooks.__exit__(None, None, None)
        return sum(self._held.values())

    def _note(self, tensor: torch.Tensor) -> torch.Tensor:
        place = _storage_of(tensor)
        if place and place not in self._known:
            self._held[place] = _storage_bytes(tensor)
        return tensor


def memory_kinds(
    modules: Iterable[torch.nn.Module],
    optimizers: Iterable[torch.optim.Optimizer],
    *,
    activations_bytes: int | None,
    batch_bytes: int,
) -> MemoryKinds:
    """Bytes by kind as of now; gradients exist only between a backward pass and the next clearing.

    Args:
        modules: The script's root modules.
        optimizers: The script's optimizers.
        activations_bytes: Bytes of the tensors that autograd saved for a backward pass.
        batch_bytes: Bytes of one micro-batch.
    """
    modules, optimizers = list(modules), list(optimizers)
    of_optimizers = [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
    parameters = [p for module in modules for p in module.parameters()] + of_optimizers
    states = [value for optimizer in optimizers for state in optimizer.state.values() for value in state.values()]
    return MemoryKinds(
        parameters_bytes=total_bytes(parameters),
        buffers_bytes=total_bytes(buffer for module in modules for buffer in module.buffers()),
        gradients_bytes=total_bytes(p.grad for p in parameters if p.grad is not None),
        optimizer_state_bytes=total_bytes(value for value in states if isinstance(value, torch.Tensor)),
        activations_bytes=activations_bytes,
        batch_bytes=batch_bytes,
    )


def total_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the memory behind tensors; shared memory counts once."""
    return sum({_storage_of(tensor): _storage_bytes(tensor) for tensor in tensors}.values())


def _storage_of(tensor: torch.Tensor) -> int:
    """Address of a tensor's memory; 0 for a tensor without memory."""
    try:
        return 0 if is_lazy(tensor) else tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return 0


def _storage_bytes(tensor: torch.Tensor) -> int:
    if is_lazy(tensor):
        return 0
    try:
        return tensor.untyped_storage().nbytes()
    except RuntimeError:
        return tensor.numel() * tensor.element_size()
