"""Copies a loader's batches to the device as tuned; on request the next batch during the step on the present batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any, Generic, TypeVar

import torch

from autotune.trial.torch.batch_structure import map_batch
from autotune.trial.torch.side_stream import Copied, SideStream

Batch = TypeVar("Batch")


class DeviceBatches(Generic[Batch]):
    """A loader's batches on a device, with the length and the public attributes of the loader.

    Tensors in nested lists, tuples and dictionaries are copied, and so are objects with a method `to`; all else stays.

    Args:
        batches: The loader.
        device: Target of the copies.
        non_blocking: A copy from page-locked memory returns at once, and stays in order on the computing stream.
        stream_prefetch: The next batch is copied on a second stream while the device computes on the present batch;
            such copies never block, even with `non_blocking` off. Needs a CUDA device, and memory for one more batch.
    """

    def __init__(
        self, batches: Iterable[Batch], device: torch.device, *, non_blocking: bool, stream_prefetch: bool
    ) -> None:
        self._batches = batches
        self._device = device
        self._non_blocking = non_blocking
        self._is_ahead = stream_prefetch

    def __len__(self) -> int:
        """Batches of the loader.

        Raises:
            TypeError: The loader has no length.
        """
        if not isinstance(self._batches, Sized):
            raise TypeError(f"a {type(self._batches).__name__} has no length")
        return len(self._batches)

    def __getattr__(self, name: str) -> Any:
        """The loader's attribute: scripts ask a loader for the dataset, or tell the sampler the epoch."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._batches, name)

    def __iter__(self) -> Iterator[Batch]:
        """One pass over the loader."""
        return self._ahead() if self._is_ahead else map(self._copied, self._batches)

    def _copied(self, batch: Batch) -> Any:
        return map_batch(batch, self._to_device, self._other)

    def _ahead(self) -> Iterator[Batch]:
        side = SideStream(self._device)
        waiting: Copied | None = None
        for batch in self._batches:
            following = side.begin(batch)
            if waiting is not None:
                yield side.arrived(waiting)
            waiting = following
        if waiting is not None:
            yield side.arrived(waiting)

    def _to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._device, non_blocking=self._non_blocking)

    def _other(self, value: Any) -> Any:
        return value.to(self._device) if hasattr(value, "to") else value
