"""Counts BatchNorm layers: torch's classes, and layers of the same effect in the script or another package."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from autotune.trial.torch import torch_names

RUNNING = frozenset({"running_mean", "running_var", "running_std"})
"""Usual names of the buffers for running statistics."""
INSTANCE_NORMS = (torch.nn.InstanceNorm1d, torch.nn.InstanceNorm2d, torch.nn.InstanceNorm3d)
"""Layers with running statistics that normalise each sample alone."""


class BatchStatistics:
    """Watches running statistics: a layer whose statistics change reads whole batches, a frozen layer does not."""

    def __init__(self) -> None:
        self._first: dict[int, list[torch.Tensor]] = {}

    def look(self, modules: Iterable[torch.nn.Module]) -> None:
        """Remembers the values of the running buffers of layers not seen before."""
        for module in _others(modules):
            if id(module) not in self._first:
                self._first[id(module)] = [buffer.detach().clone() for buffer in _running(module)]

    def count(self, modules: Iterable[torch.nn.Module]) -> int:
        """The number of layers with an output that mixes the samples of a batch."""
        every = list(modules)
        num_moved = sum(self._has_moved(module) for module in _others(every))
        return num_moved + sum(isinstance(one, torch_names.BATCH_NORM) and _reads_batches(one) for one in every)

    def _has_moved(self, module: torch.nn.Module) -> bool:
        first = self._first.get(id(module))
        if first is None:
            return False
        # Values, since a kernel of torch changes buffers without raising their version.
        return any(not torch.equal(before, now) for before, now in zip(first, _running(module), strict=False))


def _others(modules: Iterable[torch.nn.Module]) -> Iterator[torch.nn.Module]:
    """Layers with running statistics outside the classes of torch."""
    for module in modules:
        if not isinstance(module, (torch_names.BATCH_NORM, *INSTANCE_NORMS)) and _running(module):
            yield module


def _running(module: torch.nn.Module) -> list[torch.Tensor]:
    """The running buffers of a layer, in the order of names."""
    return [buffer for name, buffer in sorted(module.named_buffers(recurse=False)) if name in RUNNING]


def _reads_batches(norm: torch.nn.Module) -> bool:
    """Whether a BatchNorm layer of torch normalises by batch statistics, rather than by frozen statistics."""
    return norm.training or getattr(norm, "running_mean", None) is None
