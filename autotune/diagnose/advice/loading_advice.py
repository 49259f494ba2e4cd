"""Advice on how batches are loaded: workers, how samples are stored, decoding, epochs, copies to the device. Pure."""

from __future__ import annotations

from autotune.diagnose.advice.step_times import (
    gain_of,
    is_foreign,
    least_building_s,
    load_cpu_s,
    load_s,
    train_cpu_s,
    wait_s,
    with_faster_loading,
    with_more_threads,
    with_workers,
)
from autotune.measure.bottleneck import LOADER_NOTICEABLE_WAIT_FRACTION, BottleneckKind
from autotune.model.diagnosis import Advice, Diagnosis, Sickness
from autotune.model.observation import LoadingTimes
from autotune.settings import Group
from autotune.units import MIB, format_bytes

WORKERS_PER_CPU = 2
"""Most workers per usable core; more workers would only take turns."""
NUM_WORKERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
ENOUGH = 1.03
"""Ratio to the shortest step up to which fewer workers are as good, because fewer workers hold less memory."""
SMALL_FILE_BYTES = MIB
"""Bytes per open up to which finding and opening takes longer than reading, on disks and far more over a network."""
FILES_PER_SAMPLE = 0.5
LEAST_FILE_SHARE, LEAST_DECODE_SHARE = 0.25, 0.35
"""Least shares of a batch's building time for advice on files and on decoding."""
THREAD_SETTINGS = {
    "DALI": "num_threads of the pipeline",
    "torchdata.nodes": "num_workers of ParallelMapper",
    "SPDL": "concurrency of the slowest stage of PipelineBuilder.pipe, and num_threads of build",
    "FFCV": "num_workers of the Loader",
}
"""Settings of threads, by library."""
LAUNCHING_THREADS = 2.0
"""Most busy threads of a training process without parallel work: a thread launches kernels, another pins batches."""
PACKED_BYTES_PER_S = 1e9
"""Rate of reading a packed file in order: the rate of a process on an NVMe disk, or on a memory map of cached pages."""


def more_workers(diagnosis: Diagnosis) -> Advice | None:
    """Advises more workers when the loader holds training up."""
    facts, script_settings = diagnosis.facts, diagnosis.natural
    loader = facts.loader
    if loader is None or not is_loader_slow(diagnosis):
        return None
    if "several_loaders" in facts.notes:
        return None  # The waits are for all of them, and the build times of one.
    if loader.is_iterable and loader.num_workers == 0 and not loader.splits_among_workers:
        return None  # Without code to shard the stream, every worker would give every sample.
    most = max(1, round(WORKERS_PER_CPU * diagnosis.usable_cpus))
    if loader.num_shards is not None:
        most = min(most, loader.num_shards)
    times = {n: with_workers(diagnosis, n) for n in NUM_WORKERS if script_settings.num_workers < n <= most}
    known = {n: seconds for n, seconds in times.items() if seconds is not None}
    if not known:
        return None
    best_s = min(known.values())
    number = min(n for n, seconds in known.items() if seconds <= ENOUGH * best_s)
    gain = gain_of(diagnosis, known[number])
    if gain is None:
        return None
    built_ms = 1000 * (load_s(diagnosis) or 0.0)
    return Advice(
        sickness=Sickness.LOADER,
        action=f"Load with {number} worker{'s' if number > 1 else ''} instead of {script_settings.num_workers}.",
        where=f"num_workers={number} of the DataLoader at {place_of_loader(diagnosis)}",
        gain=gain,
        source=(
            f"building a step's batches takes {built_ms:.1f} ms in one process, training on them "
            f"{1000 * (diagnosis.step_s - wait_s(diagnosis)):.1f} ms, and {diagnosis.usable_cpus:g} cores are usable"
        ),
        settings={} if Group.LOADER in facts.claims else {"num_workers": number},
    )


def more_threads(diagnosis: Diagnosis) -> Advice | None:
    """Advises more threads of a foreign loader while processors are idle."""
    loading = diagnosis.observation.loading
    if loading is None or not is_foreign(diagnosis) or not is_loader_slow(diagnosis):
        return None
    gain = gain_of(diagnosis, with_more_threads(diagnosis))
    if gain is None:
        return None
    library = diagnosis.facts.foreign_loader
    return Advice(
        sickness=Sickness.LOADER,
        action=f"Give {library} more threads: {THREAD_SETTINGS.get(library, 'its number of threads')}.",
        where="the place that builds the loader; --map NAME=--ARGUMENT={} lets a search try values",
        gain=gain,
        is_bound=True,
        source=(
            f"{loading.num_building} threads and processes of the loader took "
            f"{1000 * load_cpu_s(diagnosis):.1f} ms of processor time for a step, training waited "
            f"{1000 * wait_s(diagnosis):.1f} of {1000 * diagnosis.step_s:.1f} ms, and {diagnosis.usable_cpus:g} cores "
            "are usable"
        ),
    )


def pack_small_files(diagnosis: Diagnosis) -> Advice | None:
    """Advises one packed file instead of many small files, where no format could be tried in scratch.

    The promised gain comes from opening and reading alone. Packing may also save Python's own work per file (a loop, a
    path, a `with`), but the figures cannot separate this work from the rest.
    """
    loading = diagnosis.observation.loading
    if loading is None or not loading.num_files or not is_loader_slow(diagnosis):
        return None
    tried = diagnosis.observation.storage
    if tried is not None and tried.packed:
        return None
    in_files_s = loading.open_s + loading.read_s
    is_small = loading.read_bytes / loading.num_files <= SMALL_FILE_BYTES
    if not is_small or loading.num_files < FILES_PER_SAMPLE * loading.num_samples:
        return None
    if in_files_s < LEAST_FILE_SHARE * loading.busy_s:
        return None
    packed_s = min(in_files_s, loading.read_bytes / PACKED_BYTES_PER_S)
    factor = (loading.busy_s - in_files_s + packed_s) / loading.busy_s
    gain = gain_of(diagnosis, with_faster_loading(diagnosis, factor))
    if gain is None:
        return None
    per_sample = loading.num_files / loading.num_samples
    return Advice(
        sickness=Sickness.SMALL_FILES,
        action=(
            "Pack the samples into one file: LMDB or HDF5 for samples read in any order, WebDataset for shards read in "
            "order, or an array read through numpy.memmap where they are of one size."
        ),
        where=f"the dataset of the DataLoader at {place_of_loader(diagnosis)}",
        gain=gain,
        source=(
            f"of building a batch {_split_text(loading)}; {per_sample:.3g} opened per sample, "
            f"of {format_bytes(loading.read_bytes / loading.num_files)} on average"
        ),
    )


def decode_elsewhere(diagnosis: Diagnosis) -> Advice | None:
    """Advises decoding on the device, or stored samples without decoding, where no decoder could be tried."""
    loading = diagnosis.observation.loading
    if loading is None or not is_loader_slow(diagnosis):
        return None
    tried = diagnosis.observation.storage
    if tried is not None and len(tried.decoders) > 1:
        return None
    if loading.decode_s < LEAST_DECODE_SHARE * loading.busy_s:
        return None
    gain = gain_of(diagnosis, with_faster_loading(diagnosis, 1 - loading.decode_s / loading.busy_s))
    if gain is None:
        return None
    action = (
        "Store the samples as they are trained on, resized and decoded, or in a format that decodes faster."
        if diagnosis.is_cpu
        else "Decode on the device with NVIDIA DALI, or store the samples resized."
    )
    return Advice(
        sickness=Sickness.DECODING,
        action=action,
        where=f"the dataset of the DataLoader at {place_of_loader(diagnosis)}",
        gain=gain,
        is_bound=True,
        source=f"of building a batch {_split_text(loading)}, decoding by {loading.decoder}",
    )


def keep_workers(diagnosis: Diagnosis) -> Advice | None:
    """Advises persistent workers when the start of an epoch takes long."""
    script_settings, restart_s, epoch_s = diagnosis.natural, diagnosis.restart_s, diagnosis.epoch_s
    is_rebuilt = diagnosis.facts.loader is not None and diagnosis.facts.loader.is_rebuilt
    is_kept = script_settings.persistent_workers and not is_rebuilt
    if not script_settings.num_workers or is_kept or restart_s is None or not epoch_s:
        return None
    step_s = diagnosis.step_s
    gain = gain_of(diagnosis, step_s * epoch_s / (epoch_s + restart_s))
    if gain is None:
        return None
    return Advice(
        sickness=Sickness.EPOCH_START,
        action="Build the loader once, before the epochs." if is_rebuilt else "Keep the workers between epochs.",
        where=f"persistent_workers=True of the DataLoader at {place_of_loader(diagnosis)}",
        gain=gain,
        is_bound=True,
        source=f"the start of an epoch was measured to cost {restart_s:.2f} s, its batches take {epoch_s:.2f} s",
        settings={} if is_rebuilt else {"persistent_workers": True},
    )


def copy_while_training(diagnosis: Diagnosis) -> Advice | None:
    """Advises pinned memory and non-blocking copies."""
    share = diagnosis.copy_share
    if share is None or (diagnosis.natural.pin_memory and diagnosis.natural.non_blocking):
        return None
    gain = gain_of(diagnosis, diagnosis.step_s * (1 - min(0.99, share)))
    if gain is None:
        return None
    return Advice(
        sickness=Sickness.COPIES,
        action="Copy batches from pinned memory, without waiting for the copy.",
        where=f"pin_memory=True of the DataLoader at {place_of_loader(diagnosis)}, and x.to(device, non_blocking=True)",
        gain=gain,
        is_bound=True,
        source=f"copies between host and device take {share:.0%} of a step, by torch's profiler",
        settings={"pin_memory": True, "non_blocking": True},
    )


def share_processors(diagnosis: Diagnosis) -> Advice | None:
    """Advises fewer threads when workers and the training step compete for processors.

    The promised step is no shorter than its compute-only time, nor than the workers' least building time.
    """
    if diagnosis.bottleneck is not BottleneckKind.CPU_CONTENTION or not diagnosis.natural.num_workers:
        return None
    if diagnosis.natural.intra_op_threads == 1:
        return None
    if diagnosis.compute_s is None or not _has_busy_threads(diagnosis):
        return None
    gain = gain_of(diagnosis, max(diagnosis.compute_s, least_building_s(diagnosis)))
    if gain is None:
        return None
    return Advice(
        sickness=Sickness.CONTENTION,
        action="Train with one thread per operation, and let idle threads sleep, so that the workers have their cores.",
        where="torch.set_num_threads(1), or OMP_NUM_THREADS=1, and OMP_WAIT_POLICY=PASSIVE",
        gain=gain,
        is_bound=True,
        source="training on one cached batch is faster by more than the wait for data explains",
        settings={"intra_op_threads": 1, "omp_wait_policy": "passive"},
    )


def _has_busy_threads(diagnosis: Diagnosis) -> bool:
    """Whether the training process computes in several threads.

    On a CPU it does. Beside an accelerator, one thread launches kernels and another may copy batches; fewer threads per
    operation change nothing unless more of them use the processors.
    """
    return diagnosis.is_cpu or train_cpu_s(diagnosis) > LAUNCHING_THREADS * diagnosis.step_s


def place_of_loader(diagnosis: Diagnosis) -> str:
    """`file:line` of the construction of the training loader."""
    loader = diagnosis.facts.loader
    return loader.keys[0].partition("~")[0] if loader is not None and loader.keys else "an unknown place"


def is_loader_slow(diagnosis: Diagnosis) -> bool:
    """Whether training waits noticeably for its loader."""
    return wait_s(diagnosis) >= LOADER_NOTICEABLE_WAIT_FRACTION * diagnosis.step_s


def _split_text(loading: LoadingTimes) -> str:
    """The shares of a batch's building time in words."""
    parts = {
        "opening files": loading.open_s,
        "reading": loading.read_s,
        "decoding": loading.decode_s,
        "the rest": loading.rest_s,
    }
    return ", ".join(f"{name} takes {seconds / loading.busy_s:.0%}" for name, seconds in parts.items() if seconds > 0)
