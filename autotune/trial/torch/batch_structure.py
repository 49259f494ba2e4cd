"""Copies and counts batches of any structure, and lengthens a loader's epoch for a trial."""

from __future__ import annotations

import copy
import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch.utils.data import BatchSampler, IterableDataset

NO_DATA = (type, ModuleType, FunctionType)
"""Types of values without data within a batch's objects, such as the class of an enumeration."""


def tensors_of(batch: Any) -> list[torch.Tensor]:
    """All tensors in a batch of nested lists, tuples, mappings and objects with attributes; cycles are allowed."""
    found: list[torch.Tensor] = []
    queue, known = [batch], dict[int, Any]()
    while queue:
        value = queue.pop()
        if isinstance(value, torch.Tensor):
            found.append(value)
            continue
        if id(value) in known or isinstance(value, NO_DATA):
            continue
        known[id(value)] = value  # kept alive, so that the number stays unique
        if isinstance(value, Mapping):
            queue.extend(value.values())
        elif isinstance(value, (list, tuple)):
            queue.extend(value)
        elif hasattr(value, "__dict__"):
            queue.extend(vars(value).values())
    return found


def map_batch(batch: Any, of_tensor: Callable[[torch.Tensor], torch.Tensor], of_other: Callable[[Any], Any]) -> Any:
    """A batch of the same structure: `of_tensor` is applied to tensors, `of_other` to all but plain containers."""
    if isinstance(batch, torch.Tensor):
        return of_tensor(batch)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_batch(item, of_tensor, of_other) for item in batch))
    if type(batch) in (list, tuple):
        return type(batch)(map_batch(item, of_tensor, of_other) for item in batch)
    if type(batch) is dict:
        return {name: map_batch(item, of_tensor, of_other) for name, item in batch.items()}
    return of_other(batch)


def clone_batch(batch: Any) -> Any:
    """A copy of a batch with tensors free to be changed: scripts normalise batches in place."""
    return map_batch(batch, _clone, _copy)


def ordinary_clone(batch: Any) -> Any:
    """A copy of a batch in ordinary memory, for forked processes: the question for page-locked memory starts CUDA."""
    return map_batch(batch, torch.Tensor.clone, _copy)


def _clone(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type == "cpu" and tensor.is_pinned():
        return torch.empty_like(tensor, pin_memory=True).copy_(tensor)  # clone() would copy through ordinary memory
    return tensor.clone()


def _copy(value: Any) -> Any:
    return value if isinstance(value, (str, bytes, int, float, bool, type(None))) else copy.deepcopy(value)


def batch_bytes(batch: Any) -> int:
    """Bytes of a batch's tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(batch))


def leading_size(batch: Any) -> int | None:
    """Most common first dimension of a batch's tensors, as the number of samples; None without tensors."""
    sizes = Counter(tensor.size(0) for tensor in tensors_of(batch) if tensor.dim() > 0)
    return sizes.most_common(1)[0][0] if sizes else None


def is_led_by_samples(batch: Any, batch_size: int | None) -> bool:
    """Whether the first dimension of a whole batch counts samples, and not time steps or parts of samples.

    Args:
        batch: A first batch, perhaps with fewer samples than asked for.
        batch_size: Batch size of the loader; None when the dataset batches, and nothing can be compared.
    """
    leading = leading_size(batch)
    if leading is None or batch_size is None or leading == batch_size:
        return leading is not None
    return leading < batch_size and all(batch_size not in tensor.shape for tensor in tensors_of(batch))


class SampleCount:
    """Counts samples without sizes from the sampler: by the first dimension, or else by the loader's batch size."""

    def __init__(self) -> None:
        self.batch_size: int | None = None
        """Batch size of the loader; None when the dataset batches."""
        self._is_led_by_samples: bool | None = None
        """Whether the first dimension of a batch counts samples; None before the first batch."""

    def of(self, batch: Any) -> int:
        """Samples of a batch, at least 1."""
        if self._is_led_by_samples is None:
            self._is_led_by_samples = is_led_by_samples(batch, self.batch_size)
        leading = leading_size(batch) if self._is_led_by_samples else None
        return leading or self.batch_size or 1


class LongBatchSampler(BatchSampler):
    """The script's batches several times over as a long epoch, with the sizes of the batches in order.

    A window then holds no epoch's end by accident. The length is the length of the long epoch: a script that counts
    with `len(loader)` never sees more batches. An iteration that only reads ends with the script's own epoch.

    Objects are made by `over`. Frameworks call the type of a sampler in order to replace the script's sampler; a call
    of this type therefore gives a batch sampler of the script's own type.
    """

    kind: type = BatchSampler
    """Type of the script's own batch sampler."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A sampler of the script's own type; without arguments an empty one of this type, to fill or copy into."""
        return cls.kind(*args, **kwargs) if args or kwargs else super().__new__(cls)

    @classmethod
    def over(
        cls,
        inner: Any,
        *,
        least_batches: int,
        may_repeat: Callable[[int], bool],
        num_backwards: Callable[[], int],
    ) -> LongBatchSampler:
        """The batches of another sampler, repeated until there are enough; for ever when the sampler has no length.

        Args:
            inner: The script's own batch sampler.
            least_batches: Batches of the long epoch, at least; 0 leaves every epoch as it is.
            may_repeat: Asked at the end of each of the script's epochs, with the number of backward passes at the
                beginning of the iteration.
            num_backwards: Gives the number of backward passes so far.
        """
        inner = inner.inner if isinstance(inner, LongBatchSampler) else inner
        made: LongBatchSampler = object.__new__(type(cls.__name__, (cls,), {"kind": type(inner)}))
        # Bypasses __setattr__: Lightning records attributes set through it, and sets the same attributes on a sampler
        # that replaces this object.
        vars(made).update(
            inner=inner,
            sampler=getattr(inner, "sampler", None),
            batch_size=getattr(inner, "batch_size", None),
            drop_last=getattr(inner, "drop_last", False),
            latest_sizes=deque(),
            notes_sizes=False,
            is_ending=False,
            _least_batches=least_batches,
            _may_repeat=may_repeat,
            _num_backwards=num_backwards,
        )
        return made

    inner: Any
    latest_sizes: deque[int]
    """Sizes of batches asked for by the latest iteration, and not yet taken from this queue."""
    notes_sizes: bool
    """Whether a new iteration notes sizes: without a taker the queue would grow with every step."""
    is_ending: bool
    """True to end the latest iteration at the next batch, at any point of an epoch."""
    _least_batches: int
    _may_repeat: Callable[[int], bool]
    _num_backwards: Callable[[], int]

    def __iter__(self) -> Iterator[list[int]]:
        """Batches of indices; when sizes are noted, each size is queued as soon as the batch is asked for."""
        self.latest_sizes, self.is_ending = deque(), False
        return self._batches(self.latest_sizes if self.notes_sizes else None, self._num_backwards())

    def _batches(self, sizes: deque[int] | None, num_backwards_before: int) -> Iterator[list[int]]:
        is_unknown = length_of(self.inner) == 0
        num_left = self._num_repeats()
        while num_left > 0:
            num_left -= 1
            num_batches = 0
            for indices in self.inner:
                if self.is_ending:
                    return
                num_batches += 1
                if sizes is not None:
                    sizes.append(len(indices))
                yield indices
            if num_batches == 0 or not self._may_repeat(num_backwards_before):
                return
            if is_unknown:  # The sampler has learned its length as it began.
                is_unknown, num_left = False, self._num_repeats() - 1

    def _num_repeats(self) -> float:
        """Number of the script's epochs in a long epoch; infinite without a length, since no script counts on one."""
        length = length_of(self.inner)
        return math.inf if length is None else max(1, math.ceil(self._least_batches / max(1, length)))

    def __len__(self) -> int:
        """Batches of the long epoch."""
        return len(self.inner) * int(self._num_repeats())

    def __getattr__(self, name: str) -> Any:
        """An attribute of the script's own sampler.

        Raises:
            AttributeError: The sampler has no such attribute, or a framework asks before a sampler is set.
        """
        if "inner" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.inner, name)


def lengthen(
    loader: Any, *, least_batches: int, may_repeat: Callable[[int], bool], num_backwards: Callable[[], int]
) -> None:
    """Makes the epoch of a built loader long enough for a trial; the arguments are those of `LongBatchSampler.over`.

    A stream is left alone: an epoch of a stream ends when the dataset says so, and cannot be repeated from outside.
    """
    sampler = getattr(loader, "batch_sampler", None)
    if hasattr(sampler, "__iter__") and not isinstance(loader.dataset, IterableDataset):
        # The loader's setter refuses a new sampler; the attribute `sampler` of the loader stays the same.
        vars(loader)["batch_sampler"] = LongBatchSampler.over(
            sampler, least_batches=least_batches, may_repeat=may_repeat, num_backwards=num_backwards
        )


def shown_length(loader: Any) -> int | None:
    """The answer of `len(loader)` to the script, without a call of a subclass's own code; None without a length."""
    if isinstance(loader.dataset, IterableDataset):
        length = length_of(loader.dataset)
        if length is None or loader.batch_size is None:
            return length
        num_batches: float = length / loader.batch_size
        return math.floor(num_batches) if loader.drop_last else math.ceil(num_batches)
    sampler = loader.batch_sampler
    return length_of(sampler if sampler is not None else loader.sampler)


def known_length(sized: Any) -> int | None:
    """The result of `len(sized)`; None without a length, and for 0: a sampler may learn its length as it begins."""
    return length_of(sized) or None


def length_of(sized: Any) -> int | None:
    """The result of `len(sized)`; None without a length, or when the code of the length fails."""
    try:
        return len(sized)
    except Exception:
        return None
