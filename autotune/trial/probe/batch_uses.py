"""Watches how the script copies its batches to a CUDA device, in the probe.

A context sees every function of torch with a tensor of the batch, from the delivery of the batch to the next call of a
module. The copies themselves are seen at any time.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from autotune.model.facts import BatchCopy
from autotune.trial.torch import torch_names
from autotune.trial.torch.batch_structure import tensors_of
from autotune.trial.torch.patching import original_of, wrap
from autotune.trial.torch.side_stream import Place, leaves

COPIES = frozenset({"to", "cuda"})
QUESTIONS = frozenset(
    {
        *("shape", "size", "dim", "ndim", "ndimension", "numel", "nelement", "__len__", "dtype", "layout", "stride"),
        *("is_contiguous", "is_floating_point", "is_complex", "element_size", "itemsize", "nbytes", "requires_grad"),
    }
)
"""Questions with the same answer for a tensor on the device."""
OLD = 4
"""Optimizer steps until no loop needs a batch: some scripts take one or two batches ahead."""
FEW_KEPT = 1
"""Batches that a script may keep for good, for instance to draw them after every epoch."""


class BatchUses:
    """Finds out whether batches may be handed to the script on the device.

    Args:
        is_blind: Whether nothing is to be watched: a compiler would meet the watching context.
    """

    def __init__(self, is_blind: Callable[[], bool]) -> None:
        self._is_blind = is_blind
        self._is_reused = self._has_own_stream = False
        self._batches: list[_Batch] = []
        """Batches of the latest `OLD` steps, and older batches that are still alive."""
        self._num_steps = 0
        self._held: list[list[torch.Tensor]] = [[], [], []]
        """Page-locked tensors of the latest three steps, kept alive: no new tensor can lie at the same address."""
        self._watch: _Watch | None = None

    def install(self) -> None:
        """Attaches to the copies of tensors, in a torch with CUDA."""
        if torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
            for name in COPIES:
                wrap(torch.Tensor, name, self._noting)

    def delivered(self, key: str, batch: Any) -> None:
        """Begins to watch the tensors of a batch, before the script gets the batch.

        Args:
            key: Key of the loader.
            batch: The batch.
        """
        self.end_looking()
        if self._is_blind() or not is_cuda_on():
            return
        self._batches = [each for each in self._batches if each.is_young(self._num_steps) or each.is_alive]
        self._batches.append(_Batch(key, batch, self._num_steps))
        self._watch = _Watch(self._used)
        self._watch.__enter__()  # type: ignore[no-untyped-call]

    def end_looking(self) -> None:
        """Ends the watching context, at a module's call; inside a context of the script, ours stays without effect."""
        if self._watch is not None:
            self._watch.is_on = False
            if torch_names.function_mode() is self._watch:
                self._watch.__exit__(None, None, None)
            self._watch = None

    def stepped(self) -> None:
        """Notes an optimizer step."""
        self.end_looking()
        self._num_steps += 1
        self._held = [*self._held[1:], []]
        for batch in self._batches:
            batch.look_for_writes()

    def found(self, keys: Collection[str]) -> BatchCopy:
        """How batches come to the device: the first reason against copying ahead, or DIRECT.

        Args:
            keys: Keys of the training loader.
        """
        self.end_looking()
        given = [each for each in self._batches if each.key in keys]
        copied = [each for each in given if each.places]
        old = [each for each in copied if not each.is_young(self._num_steps) and each.is_alive]
        found = {
            BatchCopy.REUSED: self._is_reused,
            BatchCopy.UNSEEN: self._is_blind() or not given,
            BatchCopy.OWN_STREAM: self._has_own_stream,
            BatchCopy.WRITTEN: any(each.is_written for each in copied),
            BatchCopy.OWN_TYPE: any(each.is_in_objects for each in copied),
            BatchCopy.USED: any(each.used_places & each.places for each in copied),
            BatchCopy.KEPT: len(old) > FEW_KEPT,
            BatchCopy.NONE: not copied,
        }
        return next((reason for reason, is_so in found.items() if is_so), BatchCopy.DIRECT)

    def _used(self, tensors: Iterable[torch.Tensor]) -> None:
        for tensor in tensors:
            for batch in self._batches:
                batch.used(tensor)

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def copy(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            made = original(tensor, *args, **kwargs)
            with self._unwatched():
                if tensor.is_cpu and is_on_device(made):
                    self._copied(tensor)
            return made

        return copy

    @contextmanager
    def _unwatched(self) -> Iterator[None]:
        """Questions of our own are no use by the script."""
        watch = self._watch
        if watch is None:
            yield
            return
        watch.is_on = False
        try:
            yield
        finally:
            watch.is_on = True

    def _copied(self, tensor: torch.Tensor) -> None:
        """Notes a copy from the host to the device."""
        if is_page_locked(tensor):
            self._is_reused |= any(tensor.data_ptr() == other.data_ptr() for step in self._held[:-1] for other in step)
            self._held[-1].append(tensor)
        holders = [batch for batch in self._batches if batch.copied(tensor)]
        self._has_own_stream |= bool(holders) and is_on_side_stream()


class _Batch:
    """A batch with the uses of its tensors; holds no tensor, because the script decides how long tensors live."""

    def __init__(self, key: str, batch: Any, num_steps: int) -> None:
        self.key = key
        self.places: set[Place] = set()
        """Places of copied tensors."""
        self.used_places: set[Place] = set()
        """Places of tensors used on the host."""
        self.is_in_objects = False
        """Whether a copied tensor lies in an object without a method `to`."""
        self.is_written = False
        """Whether the script has written to a tensor after the copy."""
        self._num_steps = num_steps
        self._tensors: dict[int, tuple[weakref.ref[torch.Tensor], Place, bool]] = {}
        self._versions: dict[int, int] = {}
        """Number of writes to a tensor before the copy."""
        for place, leaf in leaves(batch):
            is_stuck = not isinstance(leaf, torch.Tensor) and not hasattr(leaf, "to")
            for tensor in tensors_of(leaf):
                self._tensors[id(tensor)] = weakref.ref(tensor), place, is_stuck

    def is_young(self, num_steps: int) -> bool:
        """Whether a loop may still need the batch."""
        return num_steps - self._num_steps < OLD

    @property
    def is_alive(self) -> bool:
        """Whether somebody holds a tensor of the batch."""
        return any(reference() is not None for reference, _, _ in self._tensors.values())

    def used(self, tensor: torch.Tensor) -> None:
        """Notes a use of a tensor on the host."""
        if self._holds(tensor):
            self.used_places.add(self._tensors[id(tensor)][1])
            self.look_for_writes()

    def copied(self, tensor: torch.Tensor) -> bool:
        """Notes a copy; returns whether the tensor is the batch's."""
        if not self._holds(tensor):
            return False
        _, place, is_stuck = self._tensors[id(tensor)]
        self._versions.setdefault(id(tensor), tensor._version)
        self.places.add(place)
        self.is_in_objects |= is_stuck
        return True

    def look_for_writes(self) -> None:
        """Compares the numbers of writes to copied tensors."""
        for number, version in self._versions.items():
            tensor = self._tensors[number][0]()
            self.is_written |= tensor is not None and tensor._version != version

    def _holds(self, tensor: torch.Tensor) -> bool:
        reference = self._tensors.get(id(tensor))
        return reference is not None and reference[0]() is tensor


class _Watch(TorchFunctionMode):
    """Tells of every tensor that a function of torch has taken, other than copies and questions."""

    def __init__(self, used: Callable[[Iterable[torch.Tensor]], None]) -> None:
        super().__init__()
        self.is_on = True
        self._used = used

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Calls a function, then tells of its tensors."""
        result = original_of(func)(*args, **(kwargs or {}))
        if self.is_on and _name(func) not in COPIES | QUESTIONS:
            self._used(tensors_of([args, kwargs]))
        return result


def _name(func: Any) -> str:
    """Name of a function, or of the attribute that a getter reads."""
    name = str(getattr(func, "__name__", ""))
    return str(getattr(getattr(func, "__self__", None), "__name__", name)) if name == "__get__" else name


def is_cuda_on() -> bool:
    """Whether the script has started CUDA; before, no batch goes there."""
    return torch_names.is_cuda_on()


def is_on_device(made: Any) -> bool:
    """Whether a copy has reached a CUDA device."""
    return isinstance(made, torch.Tensor) and made.is_cuda


def is_page_locked(tensor: torch.Tensor) -> bool:
    """Whether copies from a tensor need not wait."""
    return tensor.is_pinned()


def is_on_side_stream() -> bool:
    """Whether the script copies on a stream other than the default."""
    return bool(torch.cuda.current_stream() != torch.cuda.default_stream())
