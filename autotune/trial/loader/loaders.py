"""Finds the training loader, and builds the loader with other arguments.

A new loader's role is unknown. The probe watches for the loader with a backward pass between two batches, and notes
where the script built this loader. Later trials override the arguments of the loader built at the same place.
"""

from __future__ import annotations

import functools
import inspect
import weakref
import zlib
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from torch.utils.data import BatchSampler, DataLoader

from autotune.settings import BY_NAME, INERT_WITHOUT_WORKERS, LOADER_FIELDS
from autotune.settings.loader_group import put_in_loader
from autotune.settings.worker_start import begun_anew
from autotune.trial.loader.rebuilt_loaders import RunningCall, builds_each_round, running_calls
from autotune.trial.torch import torch_names
from autotune.trial.torch.batch_structure import LongBatchSampler, length_of
from autotune.trial.torch.patching import unwrap_all, wrap
from autotune.trial.user_frames import user_frames

CHAIN_FRAMES = 8
"""Number of callers in a key, to distinguish two loaders built by the same helper function."""
UNKNOWN_WORKERS = "unknown, since no loader was built where the training one was in the probe"
"""Reported in place of the workers when the training loader of the probe does not appear."""


class SwitchedError(BaseException):
    """Unwinds a call of the old settings after a switch; the seams then call the new settings.

    No `except Exception` of a script catches the error, and the seams catch every single one.
    """


NextBatch = Callable[[Any, Callable[[Any], Any]], Any]
"""Gives the next batch, called with the iterator and the original `__next__`."""


class LoaderRecord:
    """The construction site of a DataLoader, without a reference to the loader, which a script may drop at any time."""

    __slots__ = ("_built", "_place", "is_iterated", "is_rebuilt", "key", "num_switches")

    def __init__(self, key: str, place: _Place, num_switches: int = 0, built: Sequence[RunningCall] = ()) -> None:
        self._built = built
        self.is_rebuilt = False
        """Whether every epoch has a new loader, by the source at the latest iteration."""
        self.key = key
        self.num_switches = num_switches
        """Switches of settings in this process before the loader got its arguments."""
        self.is_iterated = False
        """Whether the script has begun to iterate over the loader."""
        self._place = place

    def iterates(self) -> None:
        """Notes that an iteration is about to begin."""
        if self._built:
            self.is_rebuilt = builds_each_round(self._built, running_calls())

    def iterated(self) -> None:
        """Notes that the loader is in use; a later loader with the same likeness may take over the place."""
        self.is_iterated = self._place.is_used = True


class _Place:
    """A dataset at a construction site of loaders."""

    __slots__ = ("dataset_id", "is_used", "last_built", "likeness")

    def __init__(self, dataset: Any, likeness: object) -> None:
        self.dataset_id = id(dataset)
        self.likeness = likeness
        self.is_used = False
        self.last_built = 0
        """Running number, over all loaders, of the last loader at this place."""


class Loaders:
    """Watches the construction, iteration and batches of all DataLoaders of this process."""

    def __init__(self) -> None:
        self.override: Callable[[str, dict[str, Any]], dict[str, Any]] | None = None
        """Called with a key and the bound arguments; returns the arguments for the construction."""
        self.built: Callable[[LoaderRecord, Any], None] | None = None
        """Called with record and loader after each construction."""
        self.iterates: Callable[[LoaderRecord, Any], None] | None = None
        """Called with record and loader before each iteration."""
        self.iterated: Callable[[LoaderRecord, Any, Any], None] | None = None
        """Called with record, loader and torch's iterator after `__iter__`; persistent workers keep the iterator."""
        self.taker: Callable[[LoaderRecord], NextBatch | None] | None = None
        """Called once per iteration; returns a replacement of `__next__`, or None to keep the original."""
        self.length_asked: Callable[[LoaderRecord], None] | None = None
        """Called when code asks for a loader's length."""
        self.goes_on: Callable[[Any, Any], None] | None = None
        """Called with an iterator of earlier settings, and with the new iterator in the same loop of the script."""
        self.looks_at_source = False
        """Whether to read from the source if a loader is built for every epoch. A real training has no use for it."""
        self._num_switches = 0
        self._running: weakref.WeakSet[Any] = weakref.WeakSet()
        """Iterators with batches by `taker`."""
        self._places: dict[str, list[_Place]] = {}
        self._num_built = 0
        self._signature = inspect.signature(DataLoader.__init__)

    def install(self) -> None:
        """Attaches to the construction and the iteration of loaders."""
        wrap(DataLoader, "__init__", self._wrap_init)
        wrap(DataLoader, "__iter__", self._wrap_iter)
        if torch_names.ITERATOR is not None:
            wrap(torch_names.ITERATOR, "__next__", self._wrap_next)
        if self.length_asked is not None:
            wrap(DataLoader, "__len__", self._wrap_len)
        if torch_names.WORKER_MODULE is not None:
            wrap(torch_names.WORKER_MODULE, torch_names.WORKER_LOOP, _without_seams)

    @property
    def may_switch(self) -> bool:
        """Whether every running iteration can go on under other settings: False after the script drops a loader."""
        return all(iterator._autotune_loader() is not None for iterator in self._running)

    def retire(self) -> None:
        """Ends the workers of the running iterations; their next batch comes from a new iteration."""
        self._num_switches += 1
        for iterator in tuple(self._running):
            self.end_iteration(iterator)
        self._running.clear()

    def end_iteration(self, iterator: Any) -> None:
        """Ends the workers of a running iteration; the next batch comes from a new iteration."""
        loader = iterator._autotune_loader()
        if hasattr(iterator, torch_names.SHUTDOWN_WORKERS):
            getattr(iterator, torch_names.SHUTDOWN_WORKERS)()
        if torch_names.batch_iterator(getattr(loader, torch_names.PERSISTENT_ITERATOR, None)) is iterator:
            setattr(loader, torch_names.PERSISTENT_ITERATOR, None)
        iterator._autotune_take = functools.partial(self._begin_anew, loader)

    def _begin_anew(self, loader: Any, iterator: Any, _: Callable[[Any], Any]) -> Any:
        """The first batch of a new iteration under new settings, in the place of an iterator of the script."""
        # A framework's own `__iter__` may do more than start an iteration.
        outer = DataLoader.__iter__(loader)
        successor = torch_names.batch_iterator(outer)
        iterator._autotune_successor = successor, outer  # An outer iterator that nobody holds may end the workers.
        iterator._autotune_take = _from_successor
        if self.goes_on is not None:
            self.goes_on(iterator, successor)
        return next(successor)

    def _rearrange(self, record: LoaderRecord, loader: Any) -> None:
        """Gives a loader from before a switch the arguments of the present settings."""
        arguments = dict(loader._autotune_arguments)
        rearrange(loader, self.override(record.key, arguments) if self.override is not None else arguments)
        record.is_iterated = False
        record.num_switches = self._num_switches
        if self.built is not None:
            self.built(record, loader)

    def _wrap_init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def init(loader: Any, *args: Any, **kwargs: Any) -> None:
            bound = self._signature.bind(loader, *args, **kwargs)
            arguments = dict(bound.arguments)
            arguments.pop("self")
            key, place = self._key(arguments.get("dataset"))
            own = arguments
            if self.override is not None:
                arguments = self.override(key, arguments)
            original(loader, **arguments)
            built = running_calls() if self.looks_at_source else ()
            record = LoaderRecord(key, place, self._num_switches, built)
            loader._autotune_record, loader._autotune_arguments = record, own
            if self.built is not None:
                self.built(record, loader)

        return init

    def _wrap_iter(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def iterate(loader: Any) -> Any:
            record = getattr(loader, "_autotune_record", None)
            if record is None:
                return original(loader)
            take = self.taker(record) if self.taker is not None else None
            if take is not None and record.num_switches != self._num_switches:
                self._rearrange(record, loader)
            record.iterates()
            if self.iterates is not None:
                try:
                    self.iterates(record, loader)
                except SwitchedError:
                    return iterate(loader)
            outer = original(loader)
            record.iterated()
            iterator = torch_names.batch_iterator(outer)
            if iterator is None:
                return outer
            iterator._autotune_take, iterator._autotune_outer = take, weakref.ref(outer)
            if take is not None:
                self._running.add(iterator)
            if self.iterated is not None:
                self.iterated(record, loader, iterator)
            return outer

        return iterate

    def _wrap_next(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def next_batch(iterator: Any) -> Any:
            take = getattr(iterator, "_autotune_take", None)
            if take is None:
                return original(iterator)
            try:
                return take(iterator, original)
            except SwitchedError:
                return next_batch(iterator)

        return next_batch

    def _wrap_len(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def length(loader: Any) -> Any:
            record = getattr(loader, "_autotune_record", None)
            if record is not None and self.length_asked is not None:
                self.length_asked(record)
            return original(loader)

        return length

    def _key(self, dataset: Any) -> tuple[str, _Place]:
        """The key `file:line~callers#ordinal` of a new loader, and the place of the ordinal.

        The ordinal counts distinct datasets, so a new loader in every epoch keeps the same key. A new dataset takes
        over the place of a used dataset with the same class and length. Among several such places, as with two loaders
        side by side, the place built longest ago is taken.
        """
        nearest, chain = _construction_site()
        target = f"{nearest}~{zlib.crc32(chain.encode()):08x}"
        places = self._places.setdefault(target, [])
        likeness = (type(dataset), length_of(dataset))
        same = (n for n, place in enumerate(places) if place.dataset_id == id(dataset) and place.likeness == likeness)
        alike = [n for n, place in enumerate(places) if place.is_used and place.likeness == likeness]
        oldest = min(alike, key=lambda n: places[n].last_built, default=len(places))
        ordinal = next(same, oldest)
        if ordinal == len(places):
            places.append(_Place(dataset, likeness))
        self._num_built += 1
        places[ordinal].dataset_id, places[ordinal].last_built = id(dataset), self._num_built
        return f"{target}#{ordinal}", places[ordinal]


def _without_seams(worker_loop: Callable[..., Any]) -> Callable[..., Any]:
    """A worker's loop that first removes all seams; spawned workers find the loop by its name.

    A dataset may convert tensors and call modules without concern for any setting, and a forked worker cannot ask CUDA.
    The trial attaches its own watches in a worker later, in `worker_init_fn`.
    """

    def loop(*args: Any, **kwargs: Any) -> Any:
        unwrap_all()
        return worker_loop(*args, **kwargs)

    return loop


def _construction_site() -> tuple[str, str]:
    """The place in the user's code that builds a loader, and the chain of callers."""
    frames = islice(user_frames(), CHAIN_FRAMES)
    places = [f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" for frame in frames]
    return (places[0] if places else "unknown:0"), "<".join(places)


def override_arguments(arguments: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A loader's arguments after the changes, without the arguments that torch refuses for a loader without workers.

    Args:
        arguments: Bound arguments of `DataLoader.__init__`, by name, without defaults.
        changes: Settings of the loader and `batch_size`, by name.
    """
    result = dict(arguments)
    batch_size = changes.get("batch_size")
    put_in_loader({name: value for name, value in changes.items() if name != "batch_size"}, result)
    if batch_size is not None:
        sampler = result.get("batch_sampler")
        if sampler is None:
            result["batch_size"] = batch_size
        else:
            result["batch_sampler"] = resized_batch_sampler(sampler, batch_size)
    if result.get("num_workers", 0) == 0:
        for name in (*INERT_WITHOUT_WORKERS, "timeout", "multiprocessing_context"):
            result.pop(name, None)
    return result


def rearrange(loader: Any, arguments: dict[str, Any]) -> None:
    """Gives a built loader other arguments, in place: the script and its framework hold the loader.

    Args:
        loader: The loader, without a running iteration.
        arguments: Arguments of `DataLoader.__init__`, by name, as `override_arguments` returns them.
    """
    given = {name: arguments.get(name) for name in LOADER_FIELDS if BY_NAME[name].put_in_loader is None}
    # The loader's setter refuses changes.
    vars(loader).update({name: BY_NAME[name].default if value is None else value for name, value in given.items()})
    vars(loader)["timeout"] = arguments.get("timeout", 0)
    vars(loader)["in_order"] = arguments.get("in_order", True)
    vars(loader)["worker_init_fn"] = begun_anew(loader, arguments.get("worker_init_fn"))
    if loader.num_workers:
        loader.multiprocessing_context = arguments.get("multiprocessing_context")
    asked = arguments.get("batch_sampler")
    size = arguments.get("batch_size", 1) if asked is None else getattr(asked, "batch_size", None)
    sampler = vars(loader).get("batch_sampler")
    if size is not None and sampler is not None and getattr(sampler, "batch_size", None) != size:
        vars(loader)["batch_sampler"] = resized_batch_sampler(sampler, size)
        if asked is None:
            vars(loader)["batch_size"] = size


def _from_successor(iterator: Any, _: Callable[[Any], Any]) -> Any:
    """The next batch of the latest iteration in the place of an iterator."""
    latest = iterator._autotune_successor
    while (later := getattr(latest[0], "_autotune_successor", None)) is not None:
        latest = later
    iterator._autotune_successor = latest
    return next(latest[0])


def resized_batch_sampler(sampler: Any, batch_size: int) -> Any:
    """A torch BatchSampler over the same indices with another size.

    A sampler of any other class is returned unchanged. A framework's shard wraps a sampler with a size changed before;
    the size of the script's own class is compared with the requested size after the trial.
    """
    inner = sampler.inner if isinstance(sampler, LongBatchSampler) else sampler
    if type(inner) is not BatchSampler:
        return sampler
    return BatchSampler(inner.sampler, batch_size, inner.drop_last)
