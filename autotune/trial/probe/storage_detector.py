"""Finds traps of stored datasets in the dataset's attributes, before workers start: handles, shards, objects."""

from __future__ import annotations

import inspect
import io
import mmap
import os
import re
import stat
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

import numpy
import torch
from torch.utils.data import IterableDataset

from autotune.model.storage_traps import StorageTrap, TrapKind
from autotune.settings.multiprocessing_context import UNSAFE
from autotune.trial.probe.main_module import start_method
from autotune.trial.user_frames import is_users

MAX_DEPTH, MAX_OBJECTS = 4, 200
"""Deepest attribute of an attribute to look at, and most objects."""
MANY_OBJECTS = 200_000
"""Python objects in a dataset from which copies in workers matter: some 20 MB at 100 bytes each."""
SPAWN_ONLY = ("decord", "lance", "nvidia.dali", "PyNvVideoCodec")
"""Libraries whose handles do not survive a fork."""
INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages."""
ARCHIVES = (zipfile.ZipFile, tarfile.TarFile)
WORKER_INFO = "get_worker_info"
OF_POSITION = frozenset({"pread", "preadv"})
"""Names in methods that read at a given position of a file."""
OF_PROCESS = frozenset({WORKER_INFO, "getpid"})
"""Names in methods that ask in which process they run."""


def traps_of(loader: Any, place: str) -> tuple[StorageTrap, ...]:
    """All traps of a loader's dataset.

    Args:
        loader: A DataLoader before its workers start.
        place: `file:line` of the loader's construction, for traps without a line of their own.
    """
    found = [*_shard_traps(loader, place)]
    is_forking = start_method(loader) == "fork"
    for holder, name, value in _attributes(loader.dataset):
        kind = _kind_of(value, has_workers=loader.num_workers > 0, is_forking=is_forking)
        if kind is TrapKind.FILE_SHARED and _has_own_position(holder, name, loader):
            continue
        if kind is not None:
            line = _line_of(holder, name)
            owner = "self" if line else type(holder).__name__
            shown = name if holder is None else f"{owner}.{name}"
            found.append(StorageTrap(kind=kind, name=shown, where=line or place))
    return tuple({(trap.kind, trap.where): trap for trap in found}.values())


def survives_fork(dataset: Any) -> bool:
    """Whether nothing was seen in a dataset that breaks in workers forked from this process."""
    kinds = (_kind_of(value, has_workers=True, is_forking=True) for _, _, value in _attributes(dataset))
    return not any(kind in UNSAFE for kind in kinds)


def _kind_of(value: Any, *, has_workers: bool, is_forking: bool) -> TrapKind | None:
    """The trap of a single attribute; None without a trap."""
    cls = type(value)
    if is_forking and _is_of(cls, "lmdb", "Environment"):
        return TrapKind.LMDB_BEFORE_FORK
    if is_forking and cls.__module__.startswith("h5py.") and cls.__name__ in ("File", "Dataset", "Group"):
        return TrapKind.HDF5_SHARED if value else None  # A closed file is false.
    if is_forking and _is_open_file(value):
        return TrapKind.FILE_SHARED
    if is_forking and has_workers and (_is_on_cuda(value) or cls.__module__.startswith(SPAWN_ONLY)):
        return TrapKind.CUDA_IN_FORK
    if cls.__module__.startswith("datasets.") and getattr(value, "_indices", None) is not None:
        return TrapKind.ARROW_INDICES
    if has_workers and isinstance(value, (list, dict, tuple)) and len(value) >= MANY_OBJECTS:
        return TrapKind.GROWING_OBJECTS
    return None


def _is_of(cls: type, module: str, name: str) -> bool:
    """Whether a class belongs to an imported module; a class in C may name the wrong module."""
    return module in sys.modules and cls is getattr(sys.modules[module], name, None)


def _is_open_file(value: Any) -> bool:
    """Whether samples may be read through this open file, or through an archive on one.

    Forked processes share the position of an open file. A file in memory has a position in every process.
    """
    cls = type(value)  # An attribute's own __class__ may fail, as that of a lazily read npz does.
    try:
        if issubclass(cls, zipfile.ZipFile):
            return value.mode == "r" and _is_open_file(value.fp)
        if issubclass(cls, tarfile.TarFile):
            return value.mode == "r" and _is_open_file(value.fileobj)
        if issubclass(cls, tempfile._TemporaryFileWrapper):
            return _is_open_file(value.file)
        # fileno() would move a SpooledTemporaryFile from memory to the disk.
        if not issubclass(cls, io.IOBase) or issubclass(cls, tempfile.SpooledTemporaryFile) or not value.readable():
            return False
        mode = getattr(value, "mode", "r")
        is_to_read = not isinstance(mode, str) or "r" in mode
        return is_to_read and stat.S_ISREG(os.fstat(value.fileno()).st_mode)
    except Exception:  # closed, detached, in memory, or a class that only looks like a file
        return False


def _has_own_position(holder: Any, name: str, loader: Any) -> bool:
    """Whether each worker reads at a position of its own: by a map or `pread`, or in a file opened anew there."""
    if any(issubclass(type(value), (mmap.mmap, numpy.memmap)) for value in _members(holder).values()):
        return True
    if name in _names_of(getattr(loader, "worker_init_fn", None)):
        return True
    methods = [_names_of(value) for cls in type(holder).__mro__ for value in vars(cls).values()]
    return any(map(_reads_apart, methods))


def _reads_apart(names: set[str]) -> bool:
    """Whether a method with these names reads at a given position, or opens a file in each process or worker."""
    asks_for_process = not OF_PROCESS.isdisjoint(names)
    return not OF_POSITION.isdisjoint(names) or (asks_for_process and any("open" in name.lower() for name in names))


def _names_of(function: Any) -> set[str]:
    """The names in the code of a function, a method or a property."""
    for attribute in ("fget", "__func__", "__wrapped__"):
        function = getattr(function, attribute, None) or function
    code = getattr(function, "__code__", None)
    return set(_names(code)) if isinstance(code, CodeType) else set()


def _is_on_cuda(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.is_cuda
    is_decoder = type(value).__module__.startswith("torchcodec.")
    return is_decoder and "cuda" in str(getattr(value, "device", getattr(value, "_device", "")))


def _attributes(dataset: Any) -> Iterator[tuple[Any, str, Any]]:
    """(holder, name, value) of the attributes of a dataset and of its inner datasets; the dataset comes first."""
    yield None, type(dataset).__name__, dataset
    queue: list[tuple[Any, int]] = [(dataset, 0)]
    seen = {id(dataset)}
    while queue and len(seen) < MAX_OBJECTS:
        holder, depth = queue.pop(0)
        for name, value in _members(holder).items():
            for inner in (value, *_few_inside(value)):
                if id(inner) in seen or isinstance(inner, (str, bytes, int, float, type, torch.nn.Module)):
                    continue
                seen.add(id(inner))
                yield holder, name, inner
                cls = type(inner)  # An object may answer for any attribute, or fail.
                is_inner = hasattr(cls, "__getitem__") or (depth == 0 and not issubclass(cls, ARCHIVES))
                if depth < MAX_DEPTH and is_inner:
                    queue.append((inner, depth + 1))


def _members(holder: Any) -> dict[str, Any]:
    """The attributes of an object itself; no function of the object's class is asked."""
    try:
        return dict(object.__getattribute__(holder, "__dict__"))
    except AttributeError:
        return {}


def _few_inside(value: Any) -> tuple[Any, ...]:
    """Members of a short list, tuple or dict, as of several datasets or handles."""
    if isinstance(value, (list, tuple)) and len(value) <= 16:
        return tuple(value)
    return tuple(value.values()) if type(value) is dict and len(value) <= 16 else ()


def _line_of(holder: Any, name: str) -> str:
    """`file:line` of the user's statement that sets an attribute; empty when the source is out of sight."""
    if holder is None:
        return ""
    try:
        lines, first = inspect.getsourcelines(type(holder))
        source = inspect.getsourcefile(type(holder)) or ""
    except (OSError, TypeError):
        return ""
    if not is_users(source) or INSTALLED & {*Path(source).parts}:
        return ""  # For instance torch's Subset and torchvision's ImageFolder.
    file = Path(source).name
    pattern = re.compile(rf"self\.{re.escape(name)}\s*(:[^=]*)?=[^=]")
    return next((f"{file}:{first + offset}" for offset, line in enumerate(lines) if pattern.search(line)), "")


# Streams ------------------------------------------------------------------------------------------------------------


def splits_among_workers(loader: Any) -> bool:
    """Whether an IterableDataset gives each worker a share of its own, by a known library or `get_worker_info`."""
    dataset = loader.dataset
    if not isinstance(dataset, IterableDataset):
        return False
    library = type(dataset).__module__.partition(".")[0]
    stages = [getattr(stage, "__name__", type(stage).__name__) for stage in _stages(dataset)]
    if library == "datasets" or "split_by_worker" in stages or "ResampledShards" in stages:
        return True
    if isinstance(dataset, torch.utils.data.IterDataPipe):
        return _has_sharding_filter(dataset)
    calls = (getattr(type(dataset), "__iter__", None), getattr(loader, "worker_init_fn", None))
    return any(_asks_for_worker(call, depth=3) for call in calls)


def _stages(dataset: Any) -> Sequence[Any]:
    """Stages of a stream of WebDataset; further datasets may call anything a pipeline, for instance a generator."""
    pipeline = getattr(dataset, "pipeline", None)
    return pipeline if isinstance(pipeline, (list, tuple)) else ()


def _has_sharding_filter(pipe: Any) -> bool:
    try:
        from torch.utils.data.graph import traverse_dps

        return "ShardingFilter" in repr(traverse_dps(pipe))
    except Exception:  # a pipe that cannot be walked
        return False


def _asks_for_worker(call: Callable[..., Any] | None, *, depth: int) -> bool:
    """Whether a function, or a function of the same module called by it, names `get_worker_info`."""
    code = getattr(call, "__code__", None)
    if code is None or depth == 0:
        return False
    names = set(_names(code))
    if WORKER_INFO in names:
        return True
    namespace = {**getattr(call, "__globals__", {})}
    known = [namespace.get(name) for name in names]
    mine = [each for each in known if getattr(each, "__module__", None) == getattr(call, "__module__", "")]
    owner = namespace.get(getattr(call, "__qualname__", "").partition(".")[0])
    methods = [getattr(owner, name, None) for name in names] if isinstance(owner, type) else []
    return any(_asks_for_worker(each, depth=depth - 1) for each in (*mine, *methods) if each is not call)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def num_shards(dataset: Any) -> int | None:
    """Shards of a stream of WebDataset or Hugging Face; None when unknown, or when shards are drawn for ever."""
    if not isinstance(dataset, IterableDataset):
        return None
    for stage in _stages(dataset):
        urls = getattr(stage, "urls", None)
        if type(stage).__name__ == "SimpleShardList" and urls is not None:
            return len(urls)
    if type(dataset).__module__.partition(".")[0] == "datasets":
        count = getattr(dataset, "num_shards", getattr(dataset, "n_shards", None))
        return count if isinstance(count, int) and count > 0 else None
    return None


def _shard_traps(loader: Any, place: str) -> Iterator[StorageTrap]:
    count = num_shards(loader.dataset)
    if count is None or count >= loader.num_workers:
        return
    is_shuffled = "huffle" in _chain(getattr(loader.dataset, "_ex_iterable", None))
    kind = TrapKind.SHUFFLE_TO_ONE if is_shuffled and count == 1 else TrapKind.FEW_SHARDS
    yield StorageTrap(kind=kind, name=f"A stream of {count} shards for {loader.num_workers} workers", where=place)


def _chain(iterable: Any) -> str:
    """Names of the classes of a stream of Hugging Face, from the outermost inwards."""
    names: list[str] = []
    while iterable is not None and len(names) < 32:
        names.append(type(iterable).__name__)
        iterable = getattr(iterable, "ex_iterable", None)
    return " ".join(names)
