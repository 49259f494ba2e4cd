"""Hands out the training loader's batches on the device, each copied during the step before, to an unedited script.

The script's own calls of `to` and `cuda` then return the tensors as given. The calls on the first batches show the
device of each tensor. Tensors without a call stay on the host.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from autotune.trial.loader.loaders import NextBatch
from autotune.trial.torch.batch_structure import tensors_of
from autotune.trial.torch.patching import Restore, wrap
from autotune.trial.torch.side_stream import Copied, Place, SideStream, leaves

LEARNING_STEPS = 4
"""Optimizer steps without a copied batch after which nothing is copied ahead: the probe has seen six with copies."""
MOST_GIVEN = 8
"""Latest batches among which the first copied batch is looked for; scripts may read many before they train."""
NOT_LEARNED = "False, since the script copies no tensor of its batches by `to` or `cuda`"
"""Comment where nothing could be copied ahead."""


class CopiesAhead:
    """Stands between an iterator of the training loader and the caller that hands batches to the script.

    Args:
        num_steps: Gives the number of optimizer steps so far.
        looks_ahead: Whether the loader may be asked for a batch before the script asks; False while workers are held
            back.
    """

    def __init__(self, num_steps: Callable[[], int], *, looks_ahead: bool) -> None:
        self.looks_ahead = looks_ahead
        self.num_copies = 0
        """Batches copied on the side stream."""
        self._num_steps = num_steps
        self._given: list[_Given] = []
        """Batches given to the script on the host, while the places to copy are unknown."""
        self._places: frozenset[Place] = frozenset()
        self._side: SideStream | None = None
        self._has_given_up = False
        self._restores: list[Restore] = []
        self._running: weakref.WeakSet[_Ahead] = weakref.WeakSet()
        self._of_cached_batch = self._ahead()

    def install(self) -> None:
        """Begins to watch the script's copies."""
        self._restores = [wrap(torch.Tensor, name, self._noting) for name in ("to", "cuda")]

    @property
    def in_force(self) -> bool | None:
        """Whether batches are copied ahead; None while this is open."""
        return True if self._side is not None else False if self._has_given_up else None

    def taking(self, next_batch: NextBatch) -> NextBatch:
        """A function like `next_batch`, with batches of the loader copied ahead."""

        def take(iterator: Any, original: Callable[[Any], Any]) -> Any:
            return next_batch(iterator, partial(self._from_loader, original))

        return take

    def close(self) -> None:
        """Drops all batches copied ahead, before a switch to other settings."""
        for ahead in self._running:
            ahead.waiting = ahead.error = None

    def of_cached(self, make: Callable[[], Any]) -> Any:
        """A batch made by `make` in place of the loader's, handed out as the loader's batches are."""
        return self._next(self._of_cached_batch, make, looks_ahead=True)

    def _from_loader(self, original: Callable[[Any], Any], iterator: Any) -> Any:
        ahead = getattr(iterator, "_autotune_ahead", None)
        if ahead is None:
            ahead = iterator._autotune_ahead = self._ahead()
        if self.looks_ahead:
            self._of_cached_batch.waiting = None  # Nobody asks for the cached batch any more.
        return self._next(ahead, partial(original, iterator), looks_ahead=self.looks_ahead)

    def _ahead(self) -> _Ahead:
        made = _Ahead()
        self._running.add(made)
        return made

    def _next(self, ahead: _Ahead, take: Callable[[], Any], *, looks_ahead: bool) -> Any:
        if self._side is None and not self._has_given_up:
            self._learn()
        if self._side is None:
            batch = take()
            if not self._has_given_up:
                self._given = [*self._given[1 - MOST_GIVEN :], _Given(batch)]
            return batch
        present = ahead.taken() or self._begun(take)
        if looks_ahead:
            try:
                ahead.waiting = self._begun(take)
            except StopIteration as end:  # raised when the next batch is due; its frames hold copied batches
                ahead.error = end.with_traceback(None)
            except Exception as error:  # a broken batch, likewise
                ahead.error = error
        return self._side.arrived(present)

    def _begun(self, take: Callable[[], Any]) -> Copied:
        assert self._side is not None
        batch = take()
        self.num_copies += 1
        return self._side.begin(batch, self._places.__contains__)

    def _learn(self) -> None:
        """Begins to copy ahead after the first batch with a copied tensor; gives up after some steps without."""
        for given in self._given:
            if given.device is not None:
                self._places = given.places()
                self._side = SideStream(given.device) if self._places else None
                break
        self._has_given_up = self._side is None and (
            any(given.device is not None for given in self._given) or self._num_steps() >= LEARNING_STEPS
        )
        if self._side is not None or self._has_given_up:
            self._given.clear()
            for restore in self._restores:
                restore()

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def copy(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            made = original(tensor, *args, **kwargs)
            if self._given and made is not tensor and _is_on_device(made):
                for given in self._given:
                    given.copied(tensor, made.device)
            return made

        return copy


class _Ahead:
    """The batch after the present batch of one iterator, or the error in its place."""

    def __init__(self) -> None:
        self.waiting: Copied | None = None
        self.error: Exception | None = None

    def taken(self) -> Copied | None:
        """The waiting batch; None without.

        Raises:
            Exception: The loader raised an error when asked for the batch.
        """
        error, self.error = self.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # The error holds this frame, and frames with copied batches: a cycle for the collector.
        waiting, self.waiting = self.waiting, None
        return waiting


class _Given:
    """A batch on the host, with the copies of its tensors by the script."""

    def __init__(self, batch: Any) -> None:
        self.device: torch.device | None = None
        """Target of the first copy; None before."""
        self._wanted: Counter[Place] = Counter()
        self._copied: Counter[Place] = Counter()
        self._tensors: dict[int, tuple[weakref.ref[torch.Tensor], Place]] = {}
        for place, leaf in leaves(batch):
            if not isinstance(leaf, torch.Tensor) and not hasattr(leaf, "to"):
                continue
            for tensor in tensors_of(leaf):
                self._wanted[place] += 1
                if tensor.is_cpu:
                    self._tensors[id(tensor)] = weakref.ref(tensor), place

    def copied(self, tensor: torch.Tensor, device: torch.device) -> None:
        """Notes the copy of a tensor to a device, if the batch holds the tensor."""
        reference, place = self._tensors.get(id(tensor), (None, ()))
        if reference is None or reference() is not tensor:
            return
        del self._tensors[id(tensor)]
        self.device = self.device or device
        if device == self.device:
            self._copied[place] += 1

    def places(self) -> frozenset[Place]:
        """Places whose every tensor went to the device."""
        return frozenset(place for place, num in self._copied.items() if num == self._wanted[place])


def _is_on_device(made: Any) -> bool:
    return isinstance(made, torch.Tensor) and made.is_cuda
