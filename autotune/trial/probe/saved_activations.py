"""Adds up the memory that the forward pass of a model keeps for the backward pass."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from autotune.trial.step.replicas import num_replicas


class SavedActivations:
    """Sees every tensor kept by the first call of each root; counts memory once, and leaves weights out."""

    def __init__(self) -> None:
        self.num_bytes = 0
        self._known: set[int] = set()

    def look(self, root: torch.nn.Module) -> AbstractContextManager[object]:
        """The context for the first call of a root; inert for compiled models, and for replicas in other threads."""
        if torch.compiler.is_compiling() or num_replicas(root) > 1:
            return nullcontext()
        self._known |= {weight.untyped_storage().data_ptr() for weight in root.parameters()}
        context: AbstractContextManager[object] = torch.autograd.graph.saved_tensors_hooks(self._keep, _give)
        return context

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        try:
            storage = tensor.untyped_storage()
            place, num_bytes = storage.data_ptr(), storage.nbytes()
        except (RuntimeError, NotImplementedError):
            return tensor  # A tensor of another layout has no storage.
        if place not in self._known:
            self._known.add(place)
            self.num_bytes += num_bytes
        return tensor


def _give(tensor: Any) -> Any:
    return tensor
