"""Bytes that training keeps, by kind, and what autograd holds for one backward pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from autotune.model.observation import MemoryKinds


class ActivationWatch:
    """Adds up what autograd keeps between two steps; begun and ended in the thread that trains."""

    def __init__(self, known: Iterable[torch.Tensor]) -> None:
        self._known = {_storage_of(tensor) for tensor in known}
        self._held: dict[int, int] = {}
        self._hooks: Any = torch.autograd.graph.saved_tensors_hooks(self._keep, lambda kept: kept)

    def begin(self) -> None:
        """Begins to look at what is saved."""
        self._hooks.__enter__()

    def end(self) -> int:
        """Ends it; the bytes."""
        self._hooks.__exit__(None, None, None)
        return sum(self._held.values())

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
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
    """The kinds as they are now; gradients are there between a backward pass and the next clearing alone.

    Args:
        modules: The script's root modules.
        optimizers: The script's optimizers.
        activations_bytes: What autograd held for a backward pass.
        batch_bytes: Of one micro-batch.
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
    """Bytes of the memory behind tensors; memory that several share counts once."""
    return sum({_storage_of(tensor): _storage_bytes(tensor) for tensor in tensors}.values())


def _storage_of(tensor: torch.Tensor) -> int:
    """Where its memory begins; 0 for a kind of tensor that has none of its own, or none yet."""
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
