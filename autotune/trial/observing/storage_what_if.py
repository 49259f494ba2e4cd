"""Tries other formats, decoders and caches on the user's samples, in scratch and within seconds.

Everything runs in a forked child: a crash of a library, or a state changed by a dataset, ends with the child.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from autotune.host import meminfo_bytes
from autotune.model.what_if import PackedRead, RepeatedWork, StorageTimes
from autotune.protocol.codec import decode, encode
from autotune.sandbox.mounts import mount_above
from autotune.trial.observing.decoder_times import decoder_times, own_name
from autotune.trial.observing.packed_reads import IN_MEMORY, MAX_BYTES, bytes_of, packed_reads
from autotune.trial.observing.repeated_work import are_equal, repeated_work
from autotune.trial.observing.sample_run import (
    MAX_SAMPLES,
    SampleRun,
    indices_of,
    limited,
    run_samples,
    whole_reads,
)
from autotune.trial.torch.batch_structure import ordinary_clone
from autotune.trial.torch.patching import unwrap_all

LIMIT_S = 30.0
"""Seconds after which the child is ended, and nothing is known."""
LEAST_READ_SHARE, LEAST_DECODE_SHARE = 0.15, 0.2
"""Shares of a sample's time from which other formats and decoders are tried."""
LEAST_REPEATED_SHARE = 0.2
MOST_SINGLE_S = 500e-6
"""Longest sample in memory for which an index with a whole batch is tried."""
LEAST_BATCHES, HAND_OVER_LIMIT_S = 4, 0.3
"""Batches and seconds for the time to hand a batch over."""
IMAGES = "images"


class WhatIf:
    """Tries alternatives for the training loader."""

    def __init__(self) -> None:
        self._loader: Callable[[], Any] = lambda: None
        self.images: list[bytes] = []
        """Encoded images of the dataset, recorded by `measure`; empty without images."""
        self.failure = ""
        """Reason for a failed `measure`; empty otherwise."""

    def iteration_begins(self, loader: Any) -> None:
        """Notes the loader of the running iteration; a loader built within the `for` statement lives no longer.

        The reference to a loader with persistent workers is weak: the script decides how long the workers live.
        """
        self._loader = weakref.ref(loader) if loader.persistent_workers else lambda: loader

    def measure(self) -> StorageTimes | None:
        """All times on the CPU; None for a stream, or after a failure of the child."""
        loader = self._loader()
        if loader is None or isinstance(loader.dataset, IterableDataset) or not hasattr(os, "fork"):
            return None
        scratch = Path(tempfile.mkdtemp(prefix="autotune-what-if-"))
        try:
            answer = _in_child(lambda: encode(_measured(loader, scratch)))
            self.images = [path.read_bytes() for path in sorted((scratch / IMAGES).glob("*"))]
            return decode(StorageTimes, answer)
        except (OSError, ValueError, _ChildError) as error:
            self.failure = str(error) or type(error).__name__
            return None
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


class _ChildError(Exception):
    """The child failed, or took too long; the text says how."""


def _in_child(run: Callable[[], str]) -> str:
    """The result of a function run in a forked child.

    Raises:
        _ChildError: The child raised an error, ended without an answer, or took longer than `LIMIT_S`.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads; loaders fork as well.
        child = context.Process(target=_child, args=(run, theirs), daemon=False)
        child.start()
    theirs.close()
    try:
        if not ours.poll(LIMIT_S):
            raise _ChildError(f"it took longer than {LIMIT_S:.0f} s")
        answer, failure = ours.recv()
        if answer is None:
            raise _ChildError(failure)
        return str(answer)
    except EOFError:
        child.join(1.0)
        raise _ChildError(f"the process ended with exit code {child.exitcode}") from None
    finally:
        child.kill()
        child.join()
        ours.close()


def _child(run: Callable[[], str], answer: Any) -> None:
    unwrap_all()
    torch.set_num_threads(1)  # as in a worker of a loader; the parent's threads do not exist here
    found: tuple[str | None, str]
    try:
        found = run(), ""
    except Exception as error:  # an error of the user's dataset outside of a worker, or of a library
        found = None, f"{type(error).__name__}: {error}"
    answer.send(found)


def _measured(loader: Any, scratch: Path) -> StorageTimes:
    """All times on the CPU, from this process and its children."""
    began = time.monotonic()
    dataset = loader.dataset
    indices = indices_of(loader, MAX_SAMPLES)
    batch_size = loader.batch_size or len(next(iter(loader.batch_sampler), [0])) if loader.batch_sampler else 1
    run = run_samples(dataset, indices, loader.collate_fn, max(1, batch_size))
    count = len(run.indices)
    processes = max(1, loader.num_workers)
    mount = mount_above(str(scratch))
    is_on_disk = mount is None or mount.kind not in IN_MEMORY

    def pack(values: list[Any]) -> tuple[PackedRead, ...]:
        return packed_reads(list(limited(values, bytes_of, MAX_BYTES)), scratch, processes, is_on_disk=is_on_disk)

    total_s = run.sample_s * count
    cold_rate = None
    if run.paths and not run.is_hdf5:
        cold_s, warm_s, size = whole_reads(run.paths)
        cold_rate = size / cold_s if size else None
        if run.cold_share > 0:
            extra_s = run.cold_share * max(0.0, cold_s - warm_s) * run.num_reads / max(1, len(run.paths))
            run.times_s = [seconds + extra_s / count for seconds in run.times_s]
            run.read_s += extra_s
    packed: tuple[PackedRead, ...] = ()
    if run.num_reads and run.read_s >= LEAST_READ_SHARE * total_s:
        generator = np.random.default_rng(0)
        packed = pack([generator.bytes(max(1, size)) for size in run.sizes])
    if run.images:
        (scratch / IMAGES).mkdir()
        for number, image in enumerate(run.images):
            (scratch / IMAGES / f"{number:03d}").write_bytes(image)
    is_decoding = run.images and run.decode_s >= LEAST_DECODE_SHARE * total_s
    times = StorageTimes(
        num_samples=count,
        sample_s=run.sample_s,
        read_s=run.read_s / count,
        decode_s=run.decode_s / count,
        num_reads=run.num_reads / count,
        read_bytes=run.read_bytes // count,
        reader="HDF5" if run.is_hdf5 else "files" if run.num_reads else "",
        chunk_samples=run.chunk_rows,
        cold_share=run.cold_share,
        cold_read_bytes_per_s=cold_rate,
        example=run.paths[0] if run.paths else "",
        scratch_free_bytes=shutil.disk_usage(scratch).free,
        memory_available_bytes=meminfo_bytes("MemAvailable") or 0,
        packed=packed,
        decoder=own_name(run.decoder) if run.decoder else "",
        images_per_sample=run.num_images / count,
        decoders=decoder_times(run.images, own_name(run.decoder)) if is_decoding else (),
        repeated=_repeated(dataset, run, pack),
        batched_s=_batched_s(dataset, run, loader.collate_fn, max(1, batch_size)),
        sample_times_s=tuple(run.times_s),
    )
    begin_by = began + LIMIT_S / 2
    hand_over_s, take_s = _hand_over(dataset, run, loader.collate_fn, max(1, batch_size), processes, begin_by)
    return replace(times, hand_over_s=hand_over_s, take_s=take_s)


def _repeated(dataset: Any, run: SampleRun, pack: Callable[[list[Any]], tuple[PackedRead, ...]]) -> RepeatedWork | None:
    """The repeated part of building a sample; None without one worth its disk."""
    cut = repeated_work(dataset, run.indices[: max(16, int(len(run.indices) / 2))])
    seconds_s = cut.share * sum(run.times_s) / len(run.times_s) if cut is not None else 0.0
    if cut is None or seconds_s < LEAST_REPEATED_SHARE * run.sample_s or seconds_s < MOST_SINGLE_S / 10:
        return None
    packed = pack(cut.values)
    if not packed:
        return None
    rest_s = cut.rest_s + run.collate_s / len(run.times_s) if cut.rest_s is not None else run.sample_s - seconds_s
    return RepeatedWork(
        where=cut.where,
        first_random=cut.first_random,
        seconds_s=seconds_s,
        rest_s=min(max(0.0, rest_s), run.sample_s),
        packed=packed,
    )


def _batched_s(dataset: Any, run: SampleRun, collate: Callable[[list[Any]], Any], batch_size: int) -> float | None:
    """Seconds of a sample when the dataset is indexed with a whole batch; None when the result differs."""
    if run.num_reads or run.sample_s > MOST_SINGLE_S or batch_size < 2 or hasattr(dataset, "__getitems__"):
        return None
    indices = run.indices[:batch_size]
    try:
        if not are_equal(_as_list(collate([dataset[index] for index in indices])), _as_list(dataset[indices])):
            return None
        times: list[float] = []
        for _ in range(20):
            began = time.perf_counter()
            dataset[indices]
            times.append(time.perf_counter() - began)
    except Exception:  # a dataset that takes numbers alone
        return None
    return float(np.median(times)) / len(indices)


class _Same(Dataset[Any]):
    """Gives a copy of the same batch again and again."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __getitem__(self, index: int) -> Any:
        return ordinary_clone(self._batch)


def _hand_over(
    dataset: Any,
    run: SampleRun,
    collate: Callable[[list[Any]], Any],
    batch_size: int,
    num_workers: int,
    begin_by: float,
) -> tuple[float | None, float | None]:
    """Mean seconds from batch to batch while workers only copy and send, and mean seconds to take a finished batch.

    Workers copy a large batch in more time than the training process needs to map it. They copy while it trains.
    None after `begin_by`: on a busy machine many workers take long to start, and all other figures would be lost.
    """
    if time.monotonic() > begin_by:
        return None, None
    samples = [dataset[index] for index in (run.indices * batch_size)[:batch_size]]
    is_over = threading.Event()
    endless = iter(lambda: int(is_over.is_set()), 1)  # the only index, until the event
    loader = DataLoader(_Same(collate(samples)), batch_size=None, sampler=endless, num_workers=num_workers)
    batches = iter(loader)
    for _ in range(2 * num_workers):  # ready before the clock starts
        next(batches)
    began, count = time.perf_counter(), 0
    while count < LEAST_BATCHES or time.perf_counter() - began < HAND_OVER_LIMIT_S:
        next(batches)
        count += 1
    hand_over_s = (time.perf_counter() - began) / count
    is_over.set()  # no worker works while the last two batches of each are taken
    time.sleep(min(HAND_OVER_LIMIT_S, 4 * num_workers * hand_over_s))
    began = time.perf_counter()
    for _ in range(num_workers):
        next(batches)
    return hand_over_s, min(hand_over_s, (time.perf_counter() - began) / num_workers)


def _as_list(batch: Any) -> Any:
    """A batch with a list in place of a tuple, as torch joins samples."""
    return list(batch) if isinstance(batch, tuple) else batch
