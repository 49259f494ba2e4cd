"""The running iteration over the training loader: how far it is, how it is ended and begun anew from outside."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader

from autotune.trial import torch_names
from autotune.trial.batches import LongBatchSampler, length_of, shown_length

MIN_BATCHES_LEFT = 8
"""Who begins another iteration after fewer batches may have had a look at them; and ends of epochs as short as that
come often enough to be a part of every window."""


class RunningEpoch:
    """The training loader's iteration that the script takes its batches from; the latest one that it began."""

    __slots__ = (
        "_iterator",
        "_latest_left",
        "_length",
        "_num_before",
        "_num_until_left",
        "_original",
        "_shown_length",
        "num_given",
        "num_until_end",
        "successor",
    )

    def __init__(self) -> None:
        self.successor: Any = None
        """The iteration that took its place when an epoch was begun from outside."""
        self.num_given = self._num_before = 0
        """Batches of it that the script was given, and those of them before it was begun anew from outside."""
        self.num_until_end = math.inf
        """Batches after which it is ended: as many as `len(loader)` says. Infinite where its own end comes no later."""
        self._iterator: weakref.ref[Any] | None = None
        """The script alone decides how long its workers live."""
        self._length = self._shown_length = math.inf
        """Batches of the script's own epoch, and of what the script takes for one."""
        self._latest_left = 0
        self._num_until_left: int | None = None
        """Batches after which the script leaves its iterations, where it does so before their end."""
        self._original: Callable[[Any], Any] = next

    def begins(self, loader: Any) -> None:
        """Prepares a loader for an iteration: batches that come in order have the sizes that were asked for."""
        self.num_given = self._num_before = 0
        sampler = getattr(loader, "batch_sampler", None)
        if isinstance(sampler, LongBatchSampler):
            # Batches that come as they are ready are told apart by their tensors alone.
            vars(sampler)["notes_sizes"] = getattr(loader, "in_order", True)

    def began(self, loader: Any, iterator: Any, *, is_held_back: bool) -> None:
        """Notes that the script began an iteration.

        Args:
            loader: The training loader.
            iterator: What it gave.
            is_held_back: Whether cached batches take the place of its own.
        """
        self._iterator, self.successor = weakref.ref(iterator), None
        # A loader with persistent workers holds its iterator: two that hold each other would live on together.
        iterator._autotune_loader = weakref.ref(loader) if loader.persistent_workers else lambda: loader
        sampler = getattr(loader, "batch_sampler", None)
        ours = sampler if isinstance(sampler, LongBatchSampler) else None
        length, shown = length_of(ours.inner if ours is not None else sampler), shown_length(loader)
        self._length = length if length is not None else math.inf
        self._shown_length = shown if shown is not None else math.inf
        # Cached batches come on top of its own.
        self.num_until_end = self._shown_length if is_held_back else math.inf
        iterator._autotune_sizes = ours.latest_sizes if ours is not None and ours.notes_sizes else None

    def is_of(self, iterator: object) -> bool:
        """Whether it is the iteration of this iterator."""
        return self._iterator is not None and self._iterator() is iterator

    @property
    def is_held(self) -> bool:
        """Whether somebody can still ask it for a batch."""
        return self._iterator is not None and self._iterator() is not None

    def left(self) -> None:
        """Notes that the script begins another iteration while it trains, wherever this one is.

        One that leaves it before its end, and all of them after as many batches, counts them: its epochs are as long as
        that.
        """
        is_early = MIN_BATCHES_LEFT <= self.num_given < self._length < math.inf
        is_as_before = self._latest_left in (0, self.num_given)
        self._num_until_left = self.num_given if is_early and is_as_before else None
        self._latest_left = self.num_given

    def taken_by(self, original: Callable[[Any], Any]) -> None:
        """Notes what takes a batch of the iteration, beneath the seams."""
        self._original = original

    def end(self, num_needed: int) -> float | None:
        """Ends it here, and takes what the workers have ready; how long the end itself took, in seconds.

        None where an epoch cannot be ended from outside, as that of a stream, which ends when its dataset says so, and
        where the script would see an epoch longer than its loader.

        Args:
            num_needed: Batches of the next epoch that the script will take for more of this one.
        """
        iterator, loader = self._alive()
        sampler = getattr(loader, "batch_sampler", None)
        if not isinstance(sampler, LongBatchSampler) or self.num_given + num_needed > self._shown_length:
            return None
        self.num_until_end = self._shown_length
        if self._num_until_left is not None:
            return _leave(iterator, loader)
        sampler.is_ending = True
        while True:
            began = time.perf_counter()
            try:
                self._original(iterator)
            except StopIteration:
                return time.perf_counter() - began
            except Exception:  # a batch that cannot be read, which the script might leave out
                return None

    def begin_next(self) -> None:
        """Begins the next epoch, and lets the script's iterator go on in it."""
        _, loader = self._alive()
        given, until_end = self.num_given, self.num_until_end
        # A framework's own class may do more in its `__iter__` than to start an iteration.
        self.successor = DataLoader.__iter__(loader)
        # The script knows of one epoch alone.
        self.num_given, self._num_before, self.num_until_end = given, given, until_end

    @property
    def num_taken(self) -> int:
        """Batches that the script was given of the iteration that runs."""
        return self.num_given - self._num_before

    @property
    def is_loader_rebuilt(self) -> bool:
        """Whether every epoch has a loader of its own: the script has dropped this one and keeps its iterator."""
        iterator, loader = self._alive()
        return iterator is not None and loader is None

    @property
    def num_batches(self) -> int | None:
        """Batches of one epoch on this rank, as far as the script goes in it; None where the loader has no length."""
        if self._num_until_left is not None:
            return self._num_until_left
        return None if math.isinf(self._length) else int(self._length)

    @property
    def is_past_end(self) -> bool:
        """Whether it has gone on past the script's own end: a script may count on that without asking its loader."""
        return self.num_given > self._length

    def _alive(self) -> tuple[Any, Any]:
        """The iterator, and its loader; None for what the script has dropped."""
        iterator = self._iterator() if self._iterator is not None else None
        return iterator, iterator._autotune_loader() if iterator is not None else None


def _leave(iterator: Any, loader: Any) -> float:
    """Leaves an iteration as a script does: workers that are not persistent end, with what they have ready and are at.

    Persistent ones go on, and the next iteration waits until they are through with that.
    """
    began = time.perf_counter()
    if not loader.persistent_workers and hasattr(iterator, torch_names.SHUTDOWN_WORKERS):
        getattr(iterator, torch_names.SHUTDOWN_WORKERS)()
    return time.perf_counter() - began
