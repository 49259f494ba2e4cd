"""Copies batches to a CUDA device on a second stream, while the device computes on the first."""

from __future__ import annotations

import inspect
import os
import sys
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from typing import Any

import torch

from autotune.trial.torch import torch_names
from autotune.trial.torch.batch_structure import map_batch, tensors_of

Place = tuple[Hashable, ...]
"""Where a tensor or object stands in a batch. Items of nested sequences share a place: their number differs."""
ANY_ITEM = "*"


class Copied:
    """A batch on the device, with a copy perhaps still under way.

    Args:
        batch: The batch, with targets in place of the tensors to copy.
        event: The end of the copy on the side stream.
        stream: The side stream.
        targets: Tensors that the side stream writes.
    """

    __slots__ = ("__weakref__", "_event", "_stream", "_targets", "batch")

    def __init__(self, batch: Any, event: Any, stream: Any, targets: list[torch.Tensor]) -> None:
        self.batch = batch
        self._event, self._stream, self._targets = event, stream, targets
        _copied.add(self)

    def arrived(self, device: torch.device) -> Any:
        """The batch, for use on the current stream: the stream waits for the copy, the host does not."""
        torch.cuda.current_stream(device).wait_event(self._event)
        self._targets = []
        return self.batch

    def __del__(self) -> None:
        """Keeps the memory of a batch that nobody takes until the copy's end."""
        if self._targets and not sys.is_finalizing():
            for target in self._targets:
                target.record_stream(self._stream)


_copied: weakref.WeakSet[Copied] = weakref.WeakSet()
_sides: weakref.WeakSet[SideStream] = weakref.WeakSet()
_inherited: list[Any] = []
"""Batches and side streams of the parent process, in a forked process."""


def _hold() -> None:
    """Holds batches and side streams before a fork, for the forked process too, such as a loader's worker.

    Garbage of the parent is garbage of the forked process too. The collector would destroy CUDA events there; CUDA does
    not work in a forked process, and torch would abort the process.
    """
    with suppress(RuntimeError):  # Another thread copies a batch at the moment of the fork.
        _inherited.extend([*_copied, *_sides])


os.register_at_fork(before=_hold, after_in_parent=_inherited.clear)


class SideStream:
    """Starts the copies of batches to one device.

    Tensors in nested lists, tuples and dictionaries are copied, and so are objects with a method `to`. The memory of
    tensors comes from the computing stream, and may have belonged to a queued step. A copy therefore waits for all
    steps queued so far, though not for the step on the present batch. No memory is held longer than by a copy without
    prefetching.

    Args:
        device: Target of the copies.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._sources: deque[tuple[Any, list[torch.Tensor]]] = deque()
        """Page-locked tensors with the end of each copy: nobody may reuse the memory before."""
        _sides.add(self)

    def begin(self, batch: Any, is_copied: Callable[[Place], bool] = lambda place: True) -> Copied:
        """Starts the copy of a batch, and returns at once if the batch is in page-locked memory.

        Args:
            batch: Tensors and objects in nested lists, tuples and dictionaries.
            is_copied: Whether the tensor or the object at a place goes to the device; all else stays as given.
        """
        while self._sources and self._sources[0][0].query():
            self._sources.popleft()
        sources: list[torch.Tensor] = []
        targets: list[torch.Tensor] = []
        places = (place for place, _ in leaves(batch))

        def of_tensor(tensor: torch.Tensor) -> torch.Tensor:
            if not is_copied(next(places)):
                return tensor
            if tensor.requires_grad or tensor.layout is not torch.strided or type(tensor) is not torch.Tensor:
                return tensor.to(self._device)
            sources.append(_page_locked(tensor))
            targets.append(torch.empty_like(tensor, device=self._device))
            return targets[-1]

        def of_other(value: Any) -> Any:
            return self._moved(value) if is_copied(next(places)) and hasattr(value, "to") else value

        made = map_batch(batch, of_tensor, of_other)
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for target, source in zip(targets, sources, strict=True):
                target.copy_(source, non_blocking=True)
        event = self._stream.record_event()
        self._sources.append((event, sources))
        return Copied(made, event, self._stream, targets)

    def arrived(self, copied: Copied) -> Any:
        """The batch, for use on the current stream: the stream waits for the copy, the host does not."""
        return copied.arrived(self._device)

    def _moved(self, value: Any) -> Any:
        """An object on the device, by its own method `to`; the memory is the side stream's."""
        options = {"non_blocking": True} if "non_blocking" in inspect.signature(value.to).parameters else {}
        computing = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._stream):
            moved = value.to(self._device, **options)
        for tensor in tensors_of(moved):
            if tensor.is_cuda:
                tensor.record_stream(computing)
        return moved


def leaves(batch: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Tensors and other values of a batch with their places, in the order of `map_batch`."""
    if isinstance(batch, torch.Tensor):
        yield place, batch
    elif (isinstance(batch, tuple) and hasattr(batch, "_fields")) or type(batch) in (list, tuple):
        for number, item in enumerate(batch):
            yield from leaves(item, (*place, ANY_ITEM if place else number))
    elif type(batch) is dict:
        for name, item in batch.items():
            yield from leaves(item, (*place, name))
    else:
        yield place, batch


def _page_locked(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in page-locked memory; only copies from there run beside the device's work."""
    if not torch_names.is_cuda_on() or not tensor.is_cpu or tensor.is_pinned():
        return tensor
    return tensor.pin_memory()
