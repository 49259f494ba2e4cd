"""Batches on their way to the device: copied as tuned, and the next one while the device computes on this one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any, Generic, TypeVar

import torch

from autotune.trial.torch.batch_structure import map_batch

Batch = TypeVar("Batch")


class DeviceBatches(Generic[Batch]):
    """A loader's batches on a device; as long as the loader, whose public attributes it has too.

    Tensors in nested lists, tuples and dictionaries are copied, and so is every other object with a `to` of its own;
    the rest stays as it is.

    Args:
        batches: The loader.
        device: Where to.
        non_blocking: A copy from page-locked memory returns at once. It stays in order on its stream.
        stream_prefetch: The next batch is copied on a stream of its own while the device computes on this one, without
            waiting whatever `non_blocking` says. It needs a CUDA device, page-locked memory to be worth anything, and
            one more batch of the device's memory.
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
            TypeError: It has no length.
        """
        if not isinstance(self._batches, Sized):
            raise TypeError(f"a {type(self._batches).__name__} has no length")
        return len(self._batches)

    def __getattr__(self, name: str) -> Any:
        """The loader's own: scripts ask for its dataset, or tell its sampler the epoch."""
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
            # A batch that nobody takes any more is still being copied: its memory is not the next one's before that.
            torch.cuda.current_stream(self._device).wait_stream(side)

    def _begun(self, batch: Batch, side: torch.cuda.Stream) -> tuple[Any, torch.cuda.Event]:
        """The batch as it will be on the device, and what says that it is there.

        Its memory is the computing stream's own. So the copy waits for the steps that were queued before, whose memory
        that may have been, and not for the step that comes now; and nothing is held for longer than without it.
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
