"""Advice on stored samples, from what was tried on the user's own files: formats, decoders, caches, batches. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt

from autotune.diagnose.advice.loader_replay import replayed_step_s
from autotune.diagnose.advice.loading_advice import is_loader_slow, place_of_loader
from autotune.diagnose.advice.step_times import (
    LEAST_GAIN,
    gain_of,
    load_s,
    train_s,
    wait_s,
    with_faster_loading,
    with_workers,
)
from autotune.model.diagnosis import Advice, Diagnosis, Sickness
from autotune.model.what_if import DecoderTime, PackedRead, RepeatedWork, StorageTimes
from autotune.settings.in_order import LEAST_TORCH
from autotune.settings.release import is_before
from autotune.units import MIB, format_bytes, format_seconds

SMALL_FILE_BYTES = MIB
"""Bytes per read up to which finding and opening takes longer than reading, on disks and far more over a network."""
LEAST_READ_SHARE, LEAST_DECODE_SHARE = 0.25, 0.35
"""Least shares of a sample's time for advice on reading and on decoding."""
MOSTLY = 0.7
"""Share of reading from which repeated work counts as reading.

A loop over files that joins their bytes left 0.79 and 0.84. With a transform of the bytes 0.66 were left; only whole
stored samples spare the transform."""
DISK_SHARE = 0.8
"""Most of the free disk for a packed dataset."""
SLOW_RATIO = 5.0
"""99th percentile of sample times over the median, from which the order of batches matters."""
COUNT_HALVINGS = 7
"""Halvings of the interval of the number of slow samples: to a percent of its width."""
NAMES = {"npy": "an array", "lmdb": "LMDB", "hdf5": "HDF5", "webdataset": "tar shards"}


def pack_files(diagnosis: Diagnosis) -> Advice | None:
    """Advises packed files instead of many small files, or of large chunks in HDF5."""
    tried = diagnosis.observation.storage
    if tried is None or not tried.packed or not is_loader_slow(diagnosis):
        return None
    if tried.read_s < LEAST_READ_SHARE * tried.sample_s:
        return None
    is_hdf5 = tried.reader == "HDF5"
    if not is_hdf5 and tried.read_bytes > SMALL_FILE_BYTES * tried.num_reads:
        return None
    repeated = tried.repeated
    is_all_reading = repeated is not None and _is_reading(repeated, tried)
    replaced_s, rest_s, formats = tried.read_s, tried.sample_s - tried.read_s, tried.packed
    if repeated is not None and is_all_reading:
        replaced_s, rest_s, formats = repeated.seconds_s, repeated.rest_s, repeated.packed
    best = _best(diagnosis, formats, tried.cold_share)
    if best is None:
        return None
    gain = gain_of(diagnosis, with_faster_loading(diagnosis, _factor(tried, rest_s, best.read_s(tried.cold_share))))
    if gain is None:
        return None
    if is_hdf5:
        what = f"store one sample in a chunk: a chunk of {tried.chunk_samples} rows is read for every sample"
    else:
        what = (
            f"{tried.num_reads:.3g} files of {format_bytes(tried.read_bytes / tried.num_reads)} are opened per sample"
        )
    return Advice(
        sickness=Sickness.CHUNKS if is_hdf5 else Sickness.SMALL_FILES,
        action=f"Pack what is read as {NAMES[best.format]}: {_command(best)}; {what}.",
        where=f"the dataset of the DataLoader at {place_of_loader(diagnosis)}",
        gain=gain,
        source=(
            f"measured on {tried.num_samples} samples in scratch: reading takes {_micro(replaced_s)} of a sample's "
            f"{_micro(tried.sample_s)}, reading them back takes {_reads(formats)}; {_cost(diagnosis, best)}"
        ),
        disk_bytes=_disk_bytes(diagnosis, best),
        memory_bytes=_disk_bytes(diagnosis, best),
    )


def decode_faster(diagnosis: Diagnosis) -> Advice | None:
    """Advises the fastest installed decoder, on the CPU or on the device."""
    tried = diagnosis.observation.storage
    if tried is None or not is_loader_slow(diagnosis) or tried.decode_s < LEAST_DECODE_SHARE * tried.sample_s:
        return None
    own = next((each for each in tried.decoders if each.name == tried.decoder), None)
    if own is None:
        return None
    others = [each for each in tried.decoders if each is not own and _is_surely_faster(each)]
    then = {each.name: _with_decoder(diagnosis, tried, own, each) for each in others}
    known = {name: seconds for name, seconds in then.items() if seconds is not None}
    best = min(known, key=known.__getitem__, default=None)
    gain = gain_of(diagnosis, known[best]) if best is not None else None
    if best is None or gain is None:
        return None
    action = (
        f"Decode a batch at once on the device: torchvision.io.decode_jpeg(list_of_files, device={diagnosis.device!r}) "
        "in a thread of the training process, with workers that only read, and join a batch's bytes in one tensor."
        if best == "nvJPEG"
        else f"Decode with {best} instead of {tried.decoder}."
    )
    times = ", ".join(map(_decoder_text, sorted(tried.decoders, key=lambda decoder: decoder.image_s)))
    return Advice(
        sickness=Sickness.DECODING,
        action=action,
        where=f"the dataset of the DataLoader at {place_of_loader(diagnosis)}",
        gain=gain,
        source=(
            f"measured on images of the dataset, on the CPU in one thread: {times}; decoding is "
            f"{tried.decode_s / tried.sample_s:.0%} of building a sample; no disk and no memory is needed"
        ),
    )


def cache_repeated_work(diagnosis: Diagnosis) -> Advice | None:
    """Advises to store the results of work that every epoch repeats."""
    tried = diagnosis.observation.storage
    repeated = tried.repeated if tried is not None else None
    if tried is None or repeated is None or not is_loader_slow(diagnosis):
        return None
    if _is_reading(repeated, tried) and pack_files(diagnosis) is not None:
        return None
    best = _best(diagnosis, repeated.packed, 0.0)
    if best is None:
        return None
    factor = _factor(tried, repeated.rest_s, best.read_s(_cold_share(diagnosis, tried, best)))
    gain = gain_of(diagnosis, with_faster_loading(diagnosis, factor))
    if gain is None:
        return None
    first = f"`{repeated.first_random}`" if repeated.first_random else ""
    action = (
        f"Store whole samples once, since every epoch builds the same: {_command(best)}."
        if not first
        else f"Store the samples as they are before {first}, the first work with random numbers: {_command(best)}."
    )
    return Advice(
        sickness=Sickness.REPEATED_WORK,
        action=action,
        where=repeated.where or f"the dataset of the DataLoader at {place_of_loader(diagnosis)}",
        gain=gain,
        source=(
            f"measured on {tried.num_samples} samples: the repeated part takes {_micro(repeated.seconds_s)} of a "
            f"sample's {_micro(tried.sample_s)}, reading its result takes {_reads(repeated.packed)}; "
            f"{_cost(diagnosis, best)}"
        ),
        disk_bytes=_disk_bytes(diagnosis, best),
        memory_bytes=_disk_bytes(diagnosis, best),
    )


def fetch_batches_at_once(diagnosis: Diagnosis) -> Advice | None:
    """Advises to index a dataset in memory with a whole batch."""
    tried = diagnosis.observation.storage
    if tried is None or tried.batched_s is None or not is_loader_slow(diagnosis):
        return None
    per_step = diagnosis.samples_per_step / diagnosis.facts.world_size
    then_s = diagnosis.step_s - wait_s(diagnosis) + tried.batched_s * per_step
    gain = gain_of(diagnosis, then_s)
    if gain is None:
        return None
    return Advice(
        sickness=Sickness.SINGLE_SAMPLES,
        action=(
            "Take a whole batch by one index, without workers: DataLoader(dataset, batch_size=None, num_workers=0, "
            "sampler=BatchSampler(RandomSampler(dataset), BATCH, False)); or give the dataset a method __getitems__."
        ),
        where=f"the DataLoader at {place_of_loader(diagnosis)}",
        gain=gain,
        source=(
            f"measured: dataset[list of indices] equals the joined samples, and takes {_micro(tried.batched_s)} per "
            f"sample instead of {_micro(tried.sample_s)}; no disk and no memory is needed"
        ),
    )


def let_fast_samples_pass(diagnosis: Diagnosis) -> Advice | None:
    """Advises batches in order of completion, or longer queues, when a few samples are slow."""
    tried, loader = diagnosis.observation.storage, diagnosis.facts.loader
    workers = diagnosis.natural.num_workers
    if tried is None or loader is None or not workers or not loader.batch_size or not is_loader_slow(diagnosis):
        return None
    if not tried.sample_times_s or is_before(diagnosis.facts.torch_version, LEAST_TORCH):
        return None
    times = sorted(tried.sample_times_s)
    median = times[len(times) // 2]
    slow = times[min(len(times) - 1, int(0.99 * len(times)))]
    if slow < SLOW_RATIO * max(median, 1e-6):
        return None
    num_batches = diagnosis.facts.num_micro_batches_per_step
    batch_train_s = train_s(diagnosis) / num_batches
    num_slow = sum(seconds >= SLOW_RATIO * median for seconds in times)

    def batch_s(expected_slow: float, prefetch: int, *, in_order: bool) -> float:
        weights = [1.0] * (len(times) - num_slow) + [expected_slow / num_slow] * num_slow
        return replayed_step_s(
            times, loader.batch_size or 1, batch_train_s, workers, prefetch, in_order=in_order, weights=weights
        )

    prefetch = diagnosis.natural.prefetch_factor
    expected = _explaining(
        lambda number: batch_s(number, prefetch, in_order=True), diagnosis.step_s / num_batches, num_slow
    )
    now_s = batch_s(expected, prefetch, in_order=True)
    choices = {
        ("in_order=False", prefetch): batch_s(expected, prefetch, in_order=False),
        (f"in_order=False, prefetch_factor={4 * prefetch}", 4 * prefetch): batch_s(
            expected, 4 * prefetch, in_order=False
        ),
    }
    (words, factor), then_s = min(
        choices.items(), key=lambda item: (item[1] > 1.03 * min(choices.values()), item[0][1])
    )
    gain = gain_of(diagnosis, diagnosis.step_s * then_s / now_s)
    if gain is None:
        return None
    held = (factor - prefetch) * workers * loader.batch_bytes
    return Advice(
        sickness=Sickness.SLOW_SAMPLES,
        action=f"Take batches as they are finished: {words}; the order of batches then differs from run to run.",
        where=f"{words} of the DataLoader at {place_of_loader(diagnosis)}",
        gain=gain,
        source=(
            f"replayed with the measured times of {len(times)} samples: half take {_micro(median)} or less, one in a "
            f"hundred {_micro(slow)} or more; a batch then takes {_micro(then_s)} instead of {_micro(now_s)}"
            + (f"; {format_bytes(held)} more memory for batches" if held else "")
        ),
        memory_bytes=held or None,
    )


def give_workers_shards(diagnosis: Diagnosis) -> Advice | None:
    """Advises more shards when workers of a stream find none."""
    loader, loading = diagnosis.facts.loader, diagnosis.observation.loading
    if loader is None or loading is None or not loader.is_iterable or not is_loader_slow(diagnosis):
        return None
    workers, busy = diagnosis.natural.num_workers, loading.num_building
    if loader.num_shards is not None:
        busy = min(busy or workers, loader.num_shards)
    if not 0 < busy < workers:
        return None
    then_s = with_workers(diagnosis, workers)
    gain = gain_of(diagnosis, then_s)
    if gain is None:
        return None
    shards = f"{loader.num_shards} shards" if loader.num_shards is not None else f"shards for {busy} workers"
    return Advice(
        sickness=Sickness.IDLE_WORKERS,
        action=(
            f"Write at least {workers} shards, better {4 * workers}: {shards} leave {workers - busy} of {workers} "
            "workers without work. autotune pack --to webdataset writes shards of --samples-per-part samples."
        ),
        where=f"the dataset of the DataLoader at {place_of_loader(diagnosis)}",
        gain=gain,
        source=(
            f"{busy} of {workers} workers built batches; a step's batches take "
            f"{format_seconds(load_s(diagnosis) or 0.0)} in one process"
        ),
    )


def _explaining(replayed_s: Callable[[float], float], measured_s: float, num_slow: int) -> float:
    """The number of slow samples with which the replay takes as long as the measured step.

    Few samples are timed one by one, so chance decides how many slow ones are among them. The window has far more
    samples. The result stays within the 95 % interval of a Poisson count, whose square root has a deviation of a half.

    Args:
        replayed_s: Seconds per batch by replay, for a number of slow samples; grows with the number.
        measured_s: Measured seconds per batch.
        num_slow: Slow samples among the timed ones, at least 1.
    """
    low, high = max(0.0, sqrt(num_slow) - 1) ** 2, (sqrt(num_slow + 1) + 1) ** 2
    for _ in range(COUNT_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if replayed_s(middle) < measured_s else (low, middle)
    return (low + high) / 2


def _is_reading(repeated: RepeatedWork, tried: StorageTimes) -> bool:
    """Whether the repeated work is mostly reading, and nothing is decoded in it."""
    return tried.read_s >= MOSTLY * repeated.seconds_s and tried.decode_s < 0.1 * repeated.seconds_s


def _factor(tried: StorageTimes, rest_s: float, read_s: float) -> float:
    """Building time of a sample after over before: a read, and the rest of the work."""
    return min(1.0, max(0.0, rest_s + read_s) / tried.sample_s)


def _is_surely_faster(other: DecoderTime) -> bool:
    """Whether a decoder is faster by more than the noise between its turns."""
    return other.sure_speedup is None or other.sure_speedup >= LEAST_GAIN


def _decoder_text(decoder: DecoderTime) -> str:
    """The time of a decoder in words."""
    beside_s = decoder.beside_step_s
    beside = f" (a step beside it takes {_micro(beside_s)})" if beside_s is not None else ""
    return f"{decoder.name} {_micro(decoder.image_s)}{beside}"


def _with_decoder(diagnosis: Diagnosis, tried: StorageTimes, own: DecoderTime, other: DecoderTime) -> float | None:
    """Seconds of a step with another decoder."""
    decode_share = min(1.0, tried.decode_s / tried.sample_s)
    if not other.is_on_device:
        return with_faster_loading(diagnosis, 1 - decode_share * max(0.0, 1 - other.image_s / own.image_s))
    loaded_s = with_faster_loading(diagnosis, 1 - decode_share)  # the workers only read
    on_device_s = other.beside_step_s
    if on_device_s is None:  # by turns on the device, at worst
        images = tried.images_per_sample * diagnosis.samples_per_step / diagnosis.facts.world_size
        on_device_s = train_s(diagnosis, 1 - decode_share) + images * other.image_s
    return None if loaded_s is None else max(loaded_s, on_device_s)


def _best(diagnosis: Diagnosis, formats: Sequence[PackedRead], cold_share: float) -> PackedRead | None:
    """The fastest format that fits the free disk; of formats within a tenth, the earliest in the list of formats."""
    tried = diagnosis.observation.storage
    assert tried is not None
    fitting = [each for each in formats if (_disk_bytes(diagnosis, each) or 0) <= DISK_SHARE * tried.scratch_free_bytes]
    least_s = min((each.read_s(cold_share) for each in fitting), default=0.0)
    return next((each for each in fitting if each.read_s(cold_share) <= 1.1 * least_s), None)


def _disk_bytes(diagnosis: Diagnosis, packed: PackedRead) -> int | None:
    """Bytes of the whole packed dataset; None when its length is unknown."""
    loader = diagnosis.facts.loader
    if loader is None or loader.num_samples is None:
        return None
    return packed.sample_bytes * loader.num_samples


def _cold_share(diagnosis: Diagnosis, tried: StorageTimes, packed: PackedRead) -> float:
    """Share of a packed dataset that no page cache of this machine can hold."""
    size = _disk_bytes(diagnosis, packed)
    if not size:
        return tried.cold_share
    return max(0.0, 1 - tried.memory_available_bytes / size)


def _cost(diagnosis: Diagnosis, packed: PackedRead) -> str:
    """Disk and memory in words."""
    size = _disk_bytes(diagnosis, packed)
    if size is None:
        return f"{format_bytes(packed.sample_bytes)} of disk per sample"
    return f"{format_bytes(size)} of disk, and as much page cache for the speed of a warm read"


def _command(packed: PackedRead) -> str:
    return f"autotune pack FILE.py:FUNCTION --to {packed.format} --out DIR, read by autotune.storage.Packed(DIR)"


def _reads(formats: Sequence[PackedRead]) -> str:
    """The times of all formats in words."""
    texts = []
    for each in formats:
        cold = f" ({_micro(each.cold_s)} from a cold cache)" if each.cold_s is not None else ""
        texts.append(f"{_micro(each.warm_s)} as {NAMES[each.format]}{cold}")
    return ", ".join(texts)


def _micro(seconds: float) -> str:
    """A short time in words."""
    return f"{1e6 * seconds:.0f} us" if seconds < 1e-3 else f"{1e3 * seconds:.3g} ms"
