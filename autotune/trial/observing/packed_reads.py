"""Packs samples in scratch, and times the reading back by a process for each loader worker."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.errors import AutotuneError
from autotune.model.what_if import PackedRead
from autotune.storage.pack_worker import pack_part
from autotune.storage.packed import Packed
from autotune.storage.packed_formats import FORMATS
from autotune.storage.packed_parts import Manifest, Source, write_manifest

MAX_BYTES = 24 << 20
"""Most bytes to pack in one format."""
NUM_ROUNDS = 3
"""Warm readings; the shortest counts, since a disturbance only lengthens a reading."""
IN_MEMORY = frozenset({"tmpfs", "ramfs"})


def packed_reads(
    values: Sequence[Any], scratch: Path, num_processes: int, *, is_on_disk: bool
) -> tuple[PackedRead, ...]:
    """The times of reading back, by format; formats without their library are left out.

    Args:
        values: Samples to pack.
        scratch: Folder to write.
        num_processes: Processes that read at the same time, at least 1.
        is_on_disk: Whether scratch lies on a disk, and not in memory.
    """
    found = []
    for name in FORMATS:
        folder = scratch / f"{name}-{len(list(scratch.iterdir()))}"
        with contextlib.suppress(AutotuneError, OSError):
            folder.mkdir()
            size = _pack(values, folder, name)
            cold_s, warm_s = _read_times(folder, len(values), num_processes)
            found.append(
                PackedRead(
                    format=name,
                    warm_s=warm_s,
                    cold_s=cold_s if is_on_disk else None,
                    sample_bytes=size // len(values),
                )
            )
    return tuple(found)


def _pack(values: Sequence[Any], folder: Path, format_name: str) -> int:
    """Bytes of the values, packed into one part."""
    source = Source(
        file="", function="", digest="", num_samples=len(values), format=format_name, samples_per_part=len(values)
    )
    part = pack_part(values, folder, format_name, 0, range(len(values)))
    write_manifest(folder, Manifest(source=source, parts=(part,)))
    return part.num_bytes


def _read_times(folder: Path, count: int, num_processes: int) -> tuple[float, float]:
    """Seconds of one process for a sample, cold and warm."""
    for path in folder.iterdir():
        drop_from_cache(path)
    order = list(range(count))
    random.Random(0).shuffle(order)
    context = multiprocessing.get_context("fork")
    pipes, processes = [], []
    for number in range(num_processes):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_read, args=(folder, order[number::num_processes], theirs), daemon=False)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    times = []
    for pipe, process in zip(pipes, processes, strict=True):
        with contextlib.suppress(EOFError):
            times.append(pipe.recv())
        process.join()
    if len(times) < num_processes:
        raise OSError("a reading process died")
    cold, warm = zip(*times, strict=True)
    return sum(cold) / num_processes, sum(warm) / num_processes


def _read(folder: Path, order: list[int], answer: Any) -> None:
    packed = Packed(folder)
    times = []
    for _ in range(1 + NUM_ROUNDS):
        began = time.perf_counter()
        for index in order:
            packed[index]
        times.append((time.perf_counter() - began) / max(1, len(order)))
    answer.send((times[0], min(times[1:])))


def drop_from_cache(path: str | Path) -> None:
    """Asks the kernel to drop a file's clean pages from memory; ignores unreadable files."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def bytes_of(value: Any) -> int:
    """Bytes of the arrays, images and texts in a sample; other objects count as 8 bytes."""
    if isinstance(value, (list, tuple)):
        return sum(map(bytes_of, value))
    if isinstance(value, dict):
        return sum(map(bytes_of, value.values()))
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if hasattr(value, "size") and hasattr(value, "getbands"):  # an image of PIL
        width, height = value.size
        return int(width * height * len(value.getbands()))
    return len(value) if isinstance(value, (bytes, str)) else 8
