"""Follows the running iteration over the training loader, and can end and restart the iteration from outside."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader

from autotune.trial.loader.endless_samplers import is_endless
from autotune.trial.torch import torch_names
from autotune.trial.torch.batch_structure import LongBatchSampler, known_length, shown_length

MIN_BATCHES_LEFT = 8
"""Least number of batches for which an iteration left by the script counts as an epoch. With fewer batches, the script
may only have inspected the data; and the ends of such short epochs come often enough to be a part of every window."""


class RunningEpoch:
    """The latest iteration over the training loader that the script began, as the source of the script's batches."""

    __slots__ = (
        "_has_begun_anew",
        "_is_endless",
        "_is_rebuilt",
        "_iterator",
        "_latest_left",
        "_length",
        "_num_before",
        "_num_until_left",
        "_original",
        "_outer",
        "_sampler",
        "_shown_length",
        "num_given",
        "num_until_end",
        "successor",
    )

    def __init__(self) -> None:
        self.successor: Any = None
        """The iteration that replaced this iteration when an epoch was begun from outside."""
        self._outer: Any = None
        """The successor with all that a library wraps around it: dropped, an outer iterator may end the workers."""
        self.num_given = self._num_before = 0
        """Batches given to the script, and the number given before the iteration was begun anew from outside."""
        self.num_until_end = math.inf
        """Batches until the epoch is ended from outside, as many as `len(loader)`. Infinite when the epoch's own end
        comes no later."""
        self._iterator: weakref.ref[Any] | None = None
        """A weak reference, because the script alone decides how long the workers live."""
        self._length = self._shown_length = math.inf
        """Batches of the script's own epoch, and of an epoch as shown to the script by `len(loader)`; infinite when
        unknown."""
        self._is_rebuilt = False
        """Whether the script's source builds a loader for every epoch."""
        self._sampler: Callable[[], Any] = lambda: None
        """Gives the script's own batch sampler, or the sampler of a loader without batches; None once it is gone."""
        self._is_endless: bool | None = None
        """Whether this sampler goes on beyond its length; None = not asked yet."""
        self._has_begun_anew = False
        """Whether the script has begun another iteration while training."""
        self._latest_left = 0
        self._num_until_left: int | None = None
        """Batches after which the script leaves every iteration early; None when the script does not."""
        self._original: Callable[[Any], Any] = next

    def begins(self, loader: Any) -> None:
        """Prepares a loader for an iteration: the requested sizes are noted for batches that come in order."""
        self.num_given = self._num_before = 0
        sampler = getattr(loader, "batch_sampler", None)
        if isinstance(sampler, LongBatchSampler):
            # Sizes of batches delivered out of order are known from tensors alone.
            vars(sampler)["notes_sizes"] = getattr(loader, "in_order", True)

    def began(self, loader: Any, iterator: Any, *, is_held_back: bool, is_rebuilt: bool = False) -> None:
        """Notes that the script began an iteration.

        Args:
            loader: The training loader.
            iterator: The new iterator of the loader.
            is_held_back: Whether cached batches take the place of the loader's batches.
            is_rebuilt: Whether the script builds a loader for every epoch.
        """
        self._is_rebuilt = is_rebuilt
        self._iterator, self.successor, self._outer = weakref.ref(iterator), None, None
        # A loader with persistent workers holds the iterator: a strong reference back would keep both alive.
        iterator._autotune_loader = weakref.ref(loader) if loader.persistent_workers else lambda: loader
        sampler = getattr(loader, "batch_sampler", None)
        ours = sampler if isinstance(sampler, LongBatchSampler) else None
        own = ours.inner if ours is not None else sampler
        self._note_sampler(own if own is not None else loader.sampler)
        self._length = known_length(ours.inner if ours is not None else sampler) or math.inf
        self._shown_length = shown_length(loader) or math.inf
        # Cached batches come on top of the loader's own batches.
        self.num_until_end = self._shown_length if is_held_back else math.inf
        iterator._autotune_sizes = ours.latest_sizes if ours is not None and ours.notes_sizes else None

    def is_of(self, iterator: object) -> bool:
        """Whether the running iteration belongs to the iterator."""
        return self._iterator is not None and self._iterator() is iterator

    @property
    def is_held(self) -> bool:
        """Whether the script still holds the iterator, and can ask for a batch."""
        return self._iterator is not None and self._iterator() is not None

    def is_at_end(self) -> bool:
        """Whether the iteration ends here from outside, which no iteration over an endless sampler does."""
        if self.num_given < self.num_until_end:
            return False
        if self._goes_on_for_ever():
            # Later batches take the short path again, and settings after a switch inherit the length.
            self._shown_length = self.num_until_end = math.inf
            return False
        return True

    def _note_sampler(self, sampler: Any) -> None:
        if sampler is self._sampler():
            return
        self._is_endless = None
        try:
            self._sampler = weakref.ref(sampler)
        except TypeError:
            self._sampler = lambda: sampler

    def _goes_on_for_ever(self) -> bool:
        if self._is_endless is None:
            self._is_endless = is_endless(self._sampler())
        return self._is_endless

    @property
    def _has_all_epochs(self) -> bool:
        """Whether the script takes all epochs from this iteration, as far as the script has shown."""
        begins_anew = self._is_rebuilt or self._has_begun_anew or self._num_until_left is not None
        return not begins_anew and self._goes_on_for_ever()

    def left(self) -> None:
        """Notes that the script begins another iteration while training, wherever the running iteration is.

        A script may leave every iteration early, after the same number of batches. This number then counts as the
        length of an epoch.
        """
        self._has_begun_anew = True
        is_early = MIN_BATCHES_LEFT <= self.num_given < self._length < math.inf
        is_as_before = self._latest_left in (0, self.num_given)
        self._num_until_left = self.num_given if is_early and is_as_before else None
        self._latest_left = self.num_given

    def taken_by(self, original: Callable[[Any], Any]) -> None:
        """Notes the original function that takes a batch of the iteration, beneath the seams."""
        self._original = original

    @property
    def source(self) -> tuple[Any, Callable[[Any], Any]]:
        """The iterator that gives the script's batches now, with the function that takes a batch.

        Raises:
            StopIteration: The script has dropped the iterator.
        """
        iterator = self.successor if self.successor is not None else self._alive()[0]
        if iterator is None:
            raise StopIteration
        return iterator, self._original

    def end(self, num_needed: int) -> float | None:
        """Ends the iteration here and drops batches ready in the workers; returns the time of the end in seconds.

        The time is only that of the end itself, without the time of the dropped batches. The result is None when an
        epoch cannot be ended from outside, when the script would see an epoch longer than its loader, or when a batch
        cannot be read. A stream, for instance, ends only when its dataset says so.

        Args:
            num_needed: Batches of the next epoch that the script will take for more of this epoch.
        """
        iterator, loader = self._alive()
        sampler = getattr(loader, "batch_sampler", None)
        if not isinstance(sampler, LongBatchSampler) or self.num_given + num_needed > self._shown_length:
            return None
        if self._has_all_epochs:
            return None
        if self._is_rebuilt and loader.persistent_workers:
            return None  # The workers would live on, and the script ends them with the loader.
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
            except Exception:  # an unreadable batch: the script might leave it out
                return None

    def goes_on(self, before: RunningEpoch) -> None:
        """Notes that the script sees this iteration and an earlier iteration as a single epoch.

        Args:
            before: The iteration under the settings before a switch.
        """
        self.num_given = self._num_before = before.num_given
        self._is_endless = before._is_endless
        self._shown_length = self.num_until_end = before._shown_length

    def begin_next(self) -> None:
        """Begins the next epoch, and lets the script's iterator go on in the next epoch."""
        _, loader = self._alive()
        given, until_end = self.num_given, self.num_until_end
        # A framework's own `__iter__` may do more than start an iteration.
        outer = DataLoader.__iter__(loader)
        self.successor, self._outer = torch_names.batch_iterator(outer), outer
        # The script knows of a single epoch.
        self.num_given, self._num_before, self.num_until_end = given, given, until_end

    @property
    def num_taken(self) -> int:
        """Batches of the running iteration that the script was given."""
        return self.num_given - self._num_before

    @property
    def is_loader_rebuilt(self) -> bool:
        """Whether every epoch has a new loader, by the source, or as the script keeps the iterator alone."""
        iterator, loader = self._alive()
        return self._is_rebuilt or (iterator is not None and loader is None)

    @property
    def num_batches(self) -> int | None:
        """Batches of an epoch on this rank, as far as the script reads.

        None where the loader has no length, or a single iteration over an endless sampler serves all epochs.
        """
        if self._num_until_left is not None:
            return self._num_until_left
        return None if math.isinf(self._length) or self._has_all_epochs else int(self._length)

    @property
    def is_past_end(self) -> bool:
        """Whether the iteration is past the script's own end, on which a script may count without asking its loader."""
        return self.num_given > self._length and not self._is_endless

    def _alive(self) -> tuple[Any, Any]:
        """The iterator and the loader; None in place of an object dropped by the script."""
        iterator = self._iterator() if self._iterator is not None else None
        return iterator, iterator._autotune_loader() if iterator is not None else None


def _leave(iterator: Any, loader: Any) -> float:
    """Leaves an iteration as a script does, and returns the time taken in seconds.

    Workers that are not persistent end, and their finished and unfinished batches are lost. Persistent workers go on,
    and the next iteration waits until the workers have finished.
    """
    began = time.perf_counter()
    if not loader.persistent_workers and hasattr(iterator, torch_names.SHUTDOWN_WORKERS):
        getattr(iterator, torch_names.SHUTDOWN_WORKERS)()
    return time.perf_counter() - began
