"""Counts the searches of cuDNN for the fastest kernels: one for each new size of a model's inputs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

import torch

LEAST_DIMENSIONS = 3
"""Fewest dimensions of an input to convolutions. Other tensors are targets, masks and token ids."""
MOST_SIZES = 32
"""Most sizes of inputs that count as new. The search for a further size counts as training."""
MOST_NEW_SHARE = 0.5
"""Largest share of calls with a new size. Where most calls have a new size, a real run searches as often as a trial."""


class KernelSearches:
    """Counts calls of a model with inputs of a new size: cuDNN then searches kernels, and keeps the found kernels.

    With `torch.backends.cudnn.benchmark` cuDNN times all algorithms of each convolution for each new size. YOLOX
    resizes its images every tenth step: on an H200 the first step of a size took 10 s, and later steps 0.14 s.
    """

    def __init__(self) -> None:
        self.num = 0
        """Searches so far under the settings in force."""
        self._num_calls = self._num_new = 0
        self._sizes = set[tuple[torch.Size, ...]]()
        self._sizes_under = dict[Hashable, set[tuple[torch.Size, ...]]]()
        """Sizes met in this process, by the values given to `begin`."""

    def begin(self, under: Hashable) -> None:
        """Begins to count under new settings.

        Args:
            under: Values that choose the kernels to time. Sizes met under equal values are known.
        """
        self.num = self._num_calls = self._num_new = 0
        self._sizes = self._sizes_under.setdefault(under, set())

    def note(self, inputs: Iterable[Any]) -> None:
        """Notes the arguments of a call."""
        if not torch.backends.cudnn.benchmark or len(self._sizes) > MOST_SIZES:
            return
        self._num_calls += 1
        size = tuple([tensor.shape for tensor in _tensors(inputs) if _may_be_convolved(tensor)])
        if size in self._sizes:
            return
        self._sizes.add(size)
        self._num_new += 1
        self.num += len(self._sizes) <= MOST_SIZES and self._num_new <= MOST_NEW_SHARE * self._num_calls


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among values, and in lists, tuples and mappings. Other objects may be large, and are left alone."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple, Mapping)):
            yield from _tensors(value.values() if isinstance(value, Mapping) else value)


def _may_be_convolved(tensor: torch.Tensor) -> bool:
    return not tensor.is_nested and tensor.is_floating_point() and tensor.dim() >= LEAST_DIMENSIONS
