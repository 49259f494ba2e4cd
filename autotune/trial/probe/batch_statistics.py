"""Counts the layers that normalise by the statistics of their batches: torch's, and those that others wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from autotune.trial.torch import torch_names

RUNNING = ("running_mean", "running_var")
"""Buffers of a layer that follows the statistics of its batches."""
INSTANCE_NORMS = (torch.nn.InstanceNorm1d, torch.nn.InstanceNorm2d, torch.nn.InstanceNorm3d)
"""Layers that normalise each sample by itself, and may follow the statistics all the same."""

State = tuple[tuple[int, int], ...]
"""Identity and version of each running buffer."""


class BatchStatistics:
    """Tells a layer of another author by running buffers that move from step to step; frozen ones stay."""

    def __init__(self) -> None:
        self._first: dict[int, State] = {}

    def look(self, modules: Iterable[torch.nn.Module]) -> None:
        """Remembers the running buffers of layers not seen before."""
        for module in _others(modules):
            self._first.setdefault(id(module), _state_of(module))

    def count(self, modules: Iterable[torch.nn.Module]) -> int:
        """The number of layers whose output for a sample depends on the rest of its batch."""
        every = list(modules)
        num_moved = sum(self._first.get(id(one), ()) not in ((), _state_of(one)) for one in _others(every))
        return num_moved + sum(isinstance(one, torch_names.BATCH_NORM) and _reads_batches(one) for one in every)


def _others(modules: Iterable[torch.nn.Module]) -> Iterator[torch.nn.Module]:
    """Layers with running buffers that are not torch's."""
    for module in modules:
        if not isinstance(module, (torch_names.BATCH_NORM, *INSTANCE_NORMS)) and _state_of(module):
            yield module


def _state_of(module: torch.nn.Module) -> State:
    """The state of both running buffers; empty without them."""
    buffers = [dict(module.named_buffers(recurse=False)).get(name) for name in RUNNING]
    known = [buffer for buffer in buffers if buffer is not None]
    return tuple((id(buffer), buffer._version) for buffer in known) if len(known) == len(RUNNING) else ()


def _reads_batches(norm: torch.nn.Module) -> bool:
    """Whether a BatchNorm layer normalises by the statistics of its batches, rather than by frozen statistics."""
    return norm.training or getattr(norm, "running_mean", None) is None
