"""Copies a loader's batches to the device as tuned; on request the next batch during the step on the present batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any, Generic, TypeVar

import torch

from autotune.trial.torch.batch_structure import map_batch

Batch = TypeVar("Batch")


class DeviceBatches(Generic[Batch]):
    """A loader's batches on a device, with the length and the public attributes of the loader.

    Tensors in nested lists, tuples and dictionaries are copied, and so are objects with a method `to`; all else stays.

    Args:
        batches: The loader.
        device: Target of the copies.
        non_blocking: A copy from page-locked memory returns at once, and stays in order on the computing stream.
        stream_prefetch: The next batch is copied on a second stream while the device computes on the present batch;
            such copies never block, even with `non_blocking` off. Needs a CUDA device, memory for one more batch, and
            page-locked memory for any gain.
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
        side = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        waiting: tuple[Any, torch.cuda.Event] | None = None
        try:
            for batch in self._batches:
                following = self._begun(batch, side)
                if waiting is not None:
                    yield self._arrived(*waiting)
                waiting = following
            if waiting is not None:
                yield self._arrived(*waiting)
        finally:
            # The copy of a batch not taken may still run; wait, so that no later tensor gets the memory meanwhile.
            torch.cuda.current_stream(self._device).wait_stream(side)

    def _begun(self, batch: Batch, side: torch.cuda.Stream) -> tuple[Any, torch.cuda.Event]:
        """The batch on the device, with the event that ends the copy.

        The memory comes from the computing stream, and may have belonged to a queued step. The copy therefore waits for
        all steps queued so far, though not for the step on the present batch. No memory is held longer than by a copy
        without prefetching.
        """
        copies: list[tuple[torch.Tensor, torch.Tensor]] = []

        def reserve(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.requires_grad or tensor.layout is not torch.strided or type(tensor) is not torch.Tensor:
                return self._to_device(tensor)
            target = torch.empty_like(tensor, device=self._device)
            copies.append((target, tensor))
            return target

        made = map_batch(batch, reserve, self._other)
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            for target, source in copies:
                target.copy_(source, non_blocking=True)
        return made, side.record_event()

    def _arrived(self, made: Any, event: torch.cuda.Event) -> Any:
        torch.cuda.current_stream(self._device).wait_event(event)
        return made

    def _to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._device, non_blocking=self._non_blocking)

    def _other(self, value: Any) -> Any:
        return value.to(self._device) if hasattr(value, "to") else value
