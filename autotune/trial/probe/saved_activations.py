"""Adds up the memory that the forward pass of a model keeps for the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.autograd import graph
from torch.nn.parameter import is_lazy

from autotune.trial.step.replicas import num_replicas
from autotune.trial.torch import torch_names


class SavedActivations:
    """Sees every tensor kept by the first call of each root; counts memory once, and leaves weights out.

    A later look at a root takes the place of an earlier look.

    Args:
        is_blind: Whether nothing is to be watched: a compiler would meet the watching context.
    """

    def __init__(self, is_blind: Callable[[], bool] = lambda: False) -> None:
        self._is_blind = is_blind
        self.before_bytes: int | None = None
        """Memory of the caching allocator before the first call; None without CUDA."""
        self._weights: set[int] = set()
        self._kept: dict[int, dict[int, int]] = {}
        """Bytes by address, by root."""

    @property
    def num_bytes(self) -> int:
        """Memory kept by the first calls of all roots together."""
        return sum({place: size for kept in self._kept.values() for place, size in kept.items()}.values())

    def look(self, root: torch.nn.Module) -> AbstractContextManager[object]:
        """The context for the first call of a root.

        The context does nothing for compiled models, for replicas in other threads, and within `torch.func.grad` and
        similar functions.
        """
        if self._is_blind() or torch.compiler.is_compiling() or num_replicas(root) > 1:
            return nullcontext()
        if not torch_names.takes_saved_tensor_hooks():
            return nullcontext()
        if self.before_bytes is None and torch_names.is_cuda_on():
            self.before_bytes = torch.cuda.memory_allocated()
        self._weights |= {memory_of(weight)[0] for weight in root.parameters()}
        kept = self._kept[id(root)] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            place, num_bytes = memory_of(tensor)
            if place not in self._weights:
                kept[place] = num_bytes
            return tensor

        return _every_saved_tensor(keep)


def memory_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Address and size of a tensor's memory; zeros for a tensor without memory."""
    if is_lazy(tensor):
        return 0, 0
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    except RuntimeError:
        return 0, 0  # A tensor of another layout has no storage.


def _give(tensor: Any) -> Any:
    return tensor


@contextmanager
def _every_saved_tensor(keep: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Calls `keep` with every saved tensor, except in transforms of torch.func, which refuse hooks."""
    forbid, depth = graph.disable_saved_tensors_hooks, 0
    hooks: Any = graph.saved_tensors_hooks(keep, _give)

    @contextmanager
    def forbid_beside_ours(error_message: str) -> Iterator[None]:
        nonlocal depth
        depth += 1
        if depth == 1:
            hooks.__exit__()
        try:
            with forbid(error_message):
                yield
        finally:
            depth -= 1
            if depth == 0:
                hooks.__enter__()

    with hooks:
        graph.disable_saved_tensors_hooks = forbid_beside_ours
        try:
            yield
        finally:
            graph.disable_saved_tensors_hooks = forbid
