"""Builds samples of the training dataset in the run's own order in one process, and times reading and decoding."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.trial.observing.file_times import FileTimes, Part
from autotune.trial.observing.packed_reads import drop_from_cache
from autotune.trial.torch.batch_structure import LongBatchSampler

PASS_S = 1.2
"""Seconds for one pass over the samples."""
MAX_SAMPLES, LEAST_SAMPLES = 256, 8
MAX_IMAGES, MAX_IMAGE_BYTES = 24, 8 << 20


@dataclass(slots=True)
class SampleRun:
    """Times of the samples; seconds are sums over all samples unless said otherwise."""

    indices: list[int]
    times_s: list[float]
    """Time of each sample, without instruments."""
    collate_s: float = 0.0
    """Time of joining the samples to batches."""
    sizes: list[int] = field(default_factory=list)
    """Bytes read for each sample."""
    read_s: float = 0.0
    decode_s: float = 0.0
    decoder: str = ""
    num_reads: int = 0
    read_bytes: int = 0
    num_images: int = 0
    chunk_rows: int = 1
    is_hdf5: bool = False
    paths: list[str] = field(default_factory=list)
    images: list[bytes] = field(default_factory=list)
    cold_share: float = 0.0

    @property
    def sample_s(self) -> float:
        """Time of a sample with its share of the collation."""
        return (sum(self.times_s) + self.collate_s) / len(self.times_s)


def indices_of(loader: Any, limit: int) -> list[int]:
    """The first sample indices of an epoch of a map-style loader, in the run's own order; empty for a stream."""
    sampler = loader.batch_sampler
    sampler = sampler.inner if isinstance(sampler, LongBatchSampler) else sampler
    if sampler is None:
        return [int(index) for index in itertools.islice(iter(loader.sampler), limit)]
    found: list[int] = []
    for batch in sampler:
        found += [int(index) for index in batch]
        if len(found) >= limit:
            break
    return found[:limit]


def run_samples(
    dataset: Any, indices: Sequence[int], collate: Callable[[list[Any]], Any], batch_size: int
) -> SampleRun:
    """Builds the samples three times: with notes, in the state of the page cache found; plain; and split into parts.

    Args:
        dataset: The map-style dataset.
        indices: Samples in order; fewer are built when they take long.
        collate: Joins samples to a batch.
        batch_size: Samples of a batch.
    """
    dataset[indices[-1]]  # A dataset may import a decoder, and open files, at its first sample.
    noted, shares = _noted_pass(dataset, indices)
    indices = list(indices)[: noted.num_samples]
    samples, times = [], []
    for index in indices:
        began = time.perf_counter()
        samples.append(dataset[index])
        times.append(time.perf_counter() - began)
    run = SampleRun(indices=indices, times_s=times)
    run.collate_s = _collate_s(samples, collate, batch_size)
    split = FileTimes()
    split.attach()
    try:
        for index in indices:
            split.begin()
            dataset[index]
            split.end()
    finally:
        split.detach()
    seconds = split.watch.seconds
    # Shares of this pass: on a busy machine one pass may take twice the time of another.
    scale = sum(times) / max(sum(seconds.values()), 1e-9)
    run.read_s, run.decode_s = scale * (seconds[Part.OPEN] + seconds[Part.READ]), scale * seconds[Part.DECODE]
    run.decoder = max(split.decode_s_by, key=split.decode_s_by.__getitem__) if run.decode_s > 0 else ""
    chunks = noted.times.chunk_reads
    run.is_hdf5 = bool(chunks)
    run.chunk_rows = max((rows for rows, _ in chunks), default=1)
    run.num_reads = len(split.chunk_reads) or split.num_files
    run.read_bytes, run.sizes = split.read_bytes, noted.sizes
    run.paths = list(dict.fromkeys([*(noted.times.paths or ()), *(file for _, file in chunks)]))
    run.num_images = len(noted.times.images or ())
    run.images = _contents(noted.times.images or [])
    run.cold_share = sum(shares) / len(shares) if shares else 0.0
    return run


class _Noted:
    """A first pass, with the notes of the instruments."""

    def __init__(self) -> None:
        self.times = FileTimes()
        self.sizes: list[int] = []
        self.num_samples = 0


def _noted_pass(dataset: Any, indices: Sequence[int]) -> tuple[_Noted, list[float]]:
    """The pass with notes, and the share of each opened file outside the page cache."""
    noted = _Noted()
    shares: list[float] = []
    times = noted.times
    times.paths, times.images = _Asking(shares), []
    times.attach()
    began = time.perf_counter()
    try:
        for index in indices:
            before = times.read_bytes
            times.begin()
            dataset[index]
            times.end()
            noted.sizes.append(times.read_bytes - before)
            noted.num_samples += 1
            if noted.num_samples >= LEAST_SAMPLES and time.perf_counter() - began > PASS_S:
                break
    finally:
        times.detach()
    return noted, shares


class _Asking(list[str]):
    """A list of paths that asks, for each new path, how much of the file is outside the page cache."""

    def __init__(self, shares: list[float]) -> None:
        super().__init__()
        self._shares = shares

    def append(self, path: str) -> None:
        super().append(path)
        share = cold_share(path)
        if share is not None:
            self._shares.append(share)


def _collate_s(samples: list[Any], collate: Callable[[list[Any]], Any], batch_size: int) -> float:
    """Seconds of joining the samples, by the shorter of two turns."""
    turns = []
    for _ in range(2):
        began = time.perf_counter()
        for first in range(0, len(samples), batch_size):
            collate(samples[first : first + batch_size])
        turns.append(time.perf_counter() - began)
    return min(turns)


def _contents(images: list[Any]) -> list[bytes]:
    """Content of the first images."""
    found: list[bytes] = []
    for image in images[:MAX_IMAGES]:
        with contextlib.suppress(OSError):
            if isinstance(image, str):
                found.append(Path(image).read_bytes())
            else:
                found.append(bytes(image))
        if sum(map(len, found)) > MAX_IMAGE_BYTES:
            break
    return found


def cold_share(path: str) -> float | None:
    """Share of a file's pages outside the page cache, 0 to 1; None for an empty file, or without an answer."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        if not size:
            return None
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            return None
        pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
        failed = libc.mincore(address, size, pages)
        libc.munmap(address, size)
        return None if failed else sum(not byte & 1 for byte in pages.raw) / len(pages.raw)
    finally:
        os.close(descriptor)


def whole_reads(paths: Sequence[str]) -> tuple[float, float, int]:
    """Seconds of reading files as a whole, cold and warm, and their bytes."""
    for path in paths:
        drop_from_cache(path)
    cold_s, size = _read_all(paths)
    warm_s, _ = _read_all(paths)
    return cold_s, warm_s, size


def _read_all(paths: Sequence[str]) -> tuple[float, int]:
    began, size = time.perf_counter(), 0
    for path in paths:
        with contextlib.suppress(OSError):
            size += len(Path(path).read_bytes())
    return max(time.perf_counter() - began, 1e-9), size


def limited(values: Sequence[Any], size_of: Callable[[Any], int], most_bytes: int) -> Iterator[Any]:
    """The first values, together at most so many bytes, and at least one."""
    total = 0
    for position, value in enumerate(values):
        total += size_of(value)
        if position and total > most_bytes:
            return
        yield value
