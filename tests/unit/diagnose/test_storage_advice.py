"""Advice on stored samples: what is advised first, for which gain, and at what cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.diagnose.advice.advise import advise
from autotune.diagnose.advice.loader_replay import replayed_step_s
from autotune.measure.bottleneck import BottleneckKind
from autotune.model.diagnosis import Sickness
from autotune.model.observation import DeviceTimes
from autotune.model.what_if import DecoderTime, PackedRead, RepeatedWork, StorageTimes
from autotune.settings import Settings
from autotune.units import GIB

from ..diagnoses import diagnosis, loading_times, observation
from ..facts import loader_facts, script_facts

NPY = PackedRead(format="npy", warm_s=0.02e-3, cold_s=0.2e-3, sample_bytes=1000)
LMDB = PackedRead(format="lmdb", warm_s=0.03e-3, cold_s=0.1e-3, sample_bytes=1100)


def storage(**changes):
    values = {
        "num_samples": 200,
        "sample_s": 1e-3,
        "read_s": 0.0,
        "decode_s": 0.0,
        "num_reads": 0.0,
        "read_bytes": 0,
        "scratch_free_bytes": 100 * GIB,
        "memory_available_bytes": 100 * GIB,
    }
    return StorageTimes(**{**values, **changes})


def with_storage(found, *, wait=0.8, loader=None, natural=None, **changes):
    """A loader without workers that takes `wait` of each step."""
    facts = script_facts(loader=loader or loader_facts(num_samples=10_000))
    return diagnosis(
        data_wait_fraction=wait,
        usable_cpus=1.0,
        facts=facts,
        natural=natural or Settings(batch_size=64),
        observation=observation(storage=found, loading=loading_times(busy_s=0.8, cpu_s=0.8), **changes),
    )


def advice_against(sickness, seen):
    return next((each for each in advise(seen) if each.sickness is sickness), None)


FILES = {"read_s": 0.6e-3, "num_reads": 1.0, "read_bytes": 900, "reader": "files", "packed": (NPY, LMDB)}


def test_small_files_promise_what_the_packed_copy_took():
    found = advice_against(Sickness.SMALL_FILES, with_storage(storage(**FILES)))
    assert found is not None
    # 0.8 of a step waits; 0.58 of a sample's 1 ms goes.
    assert found.gain == pytest.approx(1 / (0.2 + 0.8 * (1 - 0.58)))
    assert "--to npy" in found.action and found.disk_bytes == 10_000_000


def test_a_cold_cache_chooses_another_format():
    found = advice_against(Sickness.SMALL_FILES, with_storage(storage(**FILES, cold_share=1.0)))
    assert found is not None and "--to lmdb" in found.action


def test_nothing_is_advised_where_the_loader_does_not_bind():
    seen = with_storage(storage(**FILES, batched_s=1e-6), wait=0.0)
    assert advice_against(Sickness.SMALL_FILES, seen) is None
    assert advice_against(Sickness.SINGLE_SAMPLES, seen) is None


def test_chunks_of_hdf5_are_named():
    found = advice_against(Sickness.CHUNKS, with_storage(storage(**{**FILES, "reader": "HDF5", "chunk_samples": 256})))
    assert found is not None and "a chunk of 256 rows is read for every sample" in found.action


DECODERS = (DecoderTime(name="PIL", image_s=4e-3), DecoderTime(name="OpenCV", image_s=1e-3))
DECODING = {"decode_s": 0.5e-3, "decoder": "PIL", "images_per_sample": 1.0, "decoders": DECODERS}


def test_the_fastest_decoder_promises_its_share_of_decoding():
    found = advice_against(Sickness.DECODING, with_storage(storage(**DECODING)))
    assert found is not None and found.action == "Decode with OpenCV instead of PIL."
    assert found.gain == pytest.approx(1 / (1 - 0.8 * 0.5 * 0.75)) and not found.is_bound


def test_a_decoder_that_is_faster_in_some_turns_alone_is_not_advised():
    unsure = replace(DECODERS[1], sure_speedup=0.98)
    found = storage(decode_s=0.6e-3, decoder="PIL", images_per_sample=1.0, decoders=(DECODERS[0], unsure))
    assert advice_against(Sickness.DECODING, with_storage(found)) is None


def test_a_decoder_on_the_device_takes_the_devices_time():
    slow = DecoderTime(name="nvJPEG", image_s=10e-3, is_on_device=True)
    quick = DecoderTime(name="nvJPEG", image_s=0.01e-3, is_on_device=True)
    by_slow = advice_against(Sickness.DECODING, with_storage(storage(**{**DECODING, "decoders": (*DECODERS, slow)})))
    by_quick = advice_against(Sickness.DECODING, with_storage(storage(**{**DECODING, "decoders": (*DECODERS, quick)})))
    assert by_slow is not None and "OpenCV" in by_slow.action
    assert by_quick is not None and "torchvision.io.decode_jpeg" in by_quick.action
    assert by_quick.gain == pytest.approx(1 / (0.2 + 0.8 * 0.5))


def test_a_step_measured_beside_the_decoding_is_promised_in_place_of_a_sum():
    """A step of 100 ms waits 80 ms; alone an image takes 0.5 ms, which adds 32 ms to a step of 20 ms."""
    alone = DecoderTime(name="nvJPEG", image_s=0.5e-3, is_on_device=True)
    changes = {**DECODING, "decode_s": 0.9e-3}
    by_sum = with_storage(storage(**{**changes, "decoders": (DECODERS[0], alone)}))
    step_s = by_sum.step_s
    beside = replace(alone, beside_step_s=0.25 * step_s)
    measured = with_storage(storage(**{**changes, "decoders": (DECODERS[0], beside)}))
    promised = advice_against(Sickness.DECODING, measured)
    assumed = advice_against(Sickness.DECODING, by_sum)
    assert promised is not None and promised.gain == pytest.approx(1 / 0.28)  # the workers still read
    assert assumed is None or assumed.gain < promised.gain
    assert "a step beside it takes" in promised.source
    slower = replace(alone, beside_step_s=0.5 * step_s)
    held_up = with_storage(storage(**{**changes, "decoders": (DECODERS[0], slower)}))
    found = advice_against(Sickness.DECODING, held_up)
    assert found is not None and found.gain == pytest.approx(2.0)


def resnet_behind_workers(rate, decoders, **changes):
    """ResNet-50 on an H100 behind 16 workers on 16 cores that decode by PIL, as `studies/storage/wall.py` trains it.

    Rates, shares and times of the decoders were measured. The time of a sample, the workers' processor time and the
    time to hand a batch over were not recorded, and are assumed.
    """
    step_s = 256 / rate
    pil_s = decoders[0].image_s
    tried = storage(
        sample_s=1.1 * pil_s, decode_s=pil_s, decoder="PIL", images_per_sample=1.0, decoders=decoders, hand_over_s=0.03
    )
    values = {
        "is_cpu": False,
        "device": "cuda",
        "usable_cpus": 16.0,
        "samples_per_second": rate,
        "samples_per_step": 256.0,
        "natural": Settings(batch_size=256, num_workers=16, intra_op_threads=16),
        "facts": script_facts(loader=loader_facts(num_samples=1024)),
        "observation": observation(
            loading=loading_times(num_samples=2560, busy_s=10 * 16 * step_s, cpu_s=9.5 * 16 * step_s),
            device=DeviceTimes(num_steps=10, busy_s=0.53 * 10 * step_s, copy_s=0.05 * 10 * step_s),
            storage=tried,
        ),
    }
    return diagnosis(**{**values, **changes})


def test_decoders_come_before_threads_where_workers_that_decode_take_the_training_steps_cores():
    """Reached: PIL 1,988 images/s, torchvision 2,882, nvJPEG 3,455."""
    decoders = (
        DecoderTime(name="PIL", image_s=5.47e-3, is_on_device=False),
        DecoderTime(name="torchvision", image_s=3.63e-3, is_on_device=False),
        DecoderTime(name="nvJPEG", image_s=0.1e-3, is_on_device=True, beside_step_s=0.0868),
    )
    contention = {"bottleneck": BottleneckKind.CPU_CONTENTION, "ceiling_samples_per_second": 4770.2}
    found = advise(resnet_behind_workers(2102.8, decoders, **contention, data_wait_fraction=0.217))
    assert found[0].sickness is Sickness.DECODING, found
    assert 1.3 < found[0].gain < 1.75  # 1.45 by torchvision, 1.74 by nvJPEG
    # The workers still need their processor time, however few threads train and however few kernels are launched.
    assert all(each.gain < 1.1 for each in found if each.sickness in (Sickness.CONTENTION, Sickness.OVERHEAD))


def test_a_large_batchs_copy_by_idle_workers_is_no_part_of_the_training_step():
    """Reached: PIL 2,739 images/s, torchvision's decoder 3,873, nvJPEG 3,412."""
    decoders = (
        DecoderTime(name="PIL", image_s=3.31e-3, is_on_device=False),
        DecoderTime(name="torchvision", image_s=2.48e-3, is_on_device=False, sure_speedup=1.2),
        DecoderTime(name="nvJPEG", image_s=0.08e-3, is_on_device=True, beside_step_s=0.0722),
    )
    loader = {"bottleneck": BottleneckKind.LOADER, "ceiling_samples_per_second": 4671.1, "data_wait_fraction": 0.249}
    seen = resnet_behind_workers(2897.3, decoders, **loader)
    assert advice_against(Sickness.DECODING, seen) is None
    tried = replace(seen.observation.storage, take_s=0.002)
    advised = advice_against(Sickness.DECODING, replace(seen, observation=replace(seen.observation, storage=tried)))
    assert advised is not None and 1.15 < advised.gain < 1.42


def repeated(**changes):
    values = {"where": "data.py:9", "first_random": "Flip", "seconds_s": 0.9e-3, "rest_s": 0.1e-3}
    values["packed"] = (NPY, LMDB)
    return RepeatedWork(**{**values, **changes})


def test_repeated_work_is_stored_before_the_first_random_transform():
    seen = with_storage(storage(repeated=repeated()))
    found = advise(seen)[0]
    assert found.sickness is Sickness.REPEATED_WORK and found.where == "data.py:9" and "`Flip`" in found.action
    assert found.gain == pytest.approx(1 / (0.2 + 0.8 * 0.12))


def test_the_rest_of_a_sample_counts_as_measured_alone():
    """After heavy work the rest takes 0.1 ms; alone it takes 0.01 ms."""
    found = advice_against(Sickness.REPEATED_WORK, with_storage(storage(repeated=repeated(rest_s=0.01e-3))))
    assert found is not None and found.gain == pytest.approx(1 / (0.2 + 0.8 * 0.03))


def test_a_packed_dataset_promises_no_shorter_step_than_the_measured_hand_over():
    quick = storage(repeated=repeated(rest_s=0.0), hand_over_s=10e-3)
    seen = with_storage(quick, wait=0.9, natural=Settings(batch_size=64, num_workers=2), main_cpu_s=0.1)
    found = advice_against(Sickness.REPEATED_WORK, seen)
    # A batch takes 80 ms in each of two workers at present, and 10 ms to hand over.
    assert found is not None and found.gain < 100 / 20


def test_a_result_larger_than_the_disk_is_not_stored():
    seen = with_storage(storage(repeated=repeated(), scratch_free_bytes=1_000_000))
    assert advice_against(Sickness.REPEATED_WORK, seen) is None


def test_a_result_larger_than_the_memory_is_read_cold():
    seen = with_storage(storage(repeated=repeated(), memory_available_bytes=0))
    found = advice_against(Sickness.REPEATED_WORK, seen)
    warm = advice_against(Sickness.REPEATED_WORK, with_storage(storage(repeated=repeated())))
    assert found is not None and warm is not None and found.gain < warm.gain


def test_repeated_reading_is_advised_once():
    seen = with_storage(storage(**FILES, repeated=repeated(seconds_s=0.7e-3, rest_s=0.3e-3)))
    assert advice_against(Sickness.REPEATED_WORK, seen) is None
    found = advice_against(Sickness.SMALL_FILES, seen)
    assert found is not None and found.gain == pytest.approx(1 / (0.2 + 0.8 * (1 - 0.68)))


def test_packed_files_do_not_promise_what_a_transform_of_the_bytes_takes():
    """Of 0.9 ms that repeat, 0.6 read: packed bytes spare these, and only whole stored samples the rest."""
    seen = with_storage(storage(**FILES, repeated=repeated(first_random="", seconds_s=0.9e-3, rest_s=0.1e-3)))
    files = advice_against(Sickness.SMALL_FILES, seen)
    assert files is not None and files.gain == pytest.approx(1 / (0.2 + 0.8 * (1 - 0.58)))
    whole = advice_against(Sickness.REPEATED_WORK, seen)
    assert whole is not None and whole.gain > files.gain and "whole samples" in whole.action


def test_a_dataset_in_memory_is_indexed_by_batches():
    found = advice_against(Sickness.SINGLE_SAMPLES, with_storage(storage(batched_s=0.01e-3)))
    assert found is not None
    assert found.gain == pytest.approx(0.1 / (0.02 + 64 * 0.01e-3))


def test_slow_samples_are_let_pass_only_where_workers_wait_for_them():
    times = (0.001,) * 95 + (0.4,) * 5
    loader = replace(loader_facts(num_samples=10_000), num_workers=4, batch_size=8, prefetch_factor=2)
    natural = Settings(batch_size=8, num_workers=4)
    seen = with_storage(storage(sample_times_s=times), loader=loader, natural=natural, wait=0.5)
    found = advice_against(Sickness.SLOW_SAMPLES, seen)
    assert found is not None and "in_order=False" in found.action
    even = with_storage(storage(sample_times_s=(0.001,) * 100), loader=loader, natural=natural, wait=0.5)
    assert advice_against(Sickness.SLOW_SAMPLES, even) is None


@pytest.mark.parametrize("num_slow", [1, 3])
def test_the_measured_step_says_how_many_samples_are_slow_where_the_timed_ones_are_few(num_slow: int):
    """One in a hundred is slow; among 100 timed samples are one or three. A batch takes 27 ms, training 8 of them."""
    times = (0.001,) * (100 - num_slow) + (0.4,) * num_slow
    loader = replace(loader_facts(num_samples=10_000), num_workers=4, batch_size=8, prefetch_factor=2)
    seen = with_storage(
        storage(sample_times_s=times), loader=loader, natural=Settings(batch_size=8, num_workers=4), wait=0.72
    )
    step_s = 0.027
    seen = replace(seen, samples_per_second=8 / step_s, samples_per_step=8.0)
    found = advice_against(Sickness.SLOW_SAMPLES, seen)
    assert found is not None and found.gain == pytest.approx(2.5, rel=0.12)


def test_a_replay_in_order_waits_for_the_slow_batch_and_out_of_order_does_not():
    times = (0.001,) * 99 + (0.4,)
    in_order = replayed_step_s(times, 8, 0.012, workers=4, prefetch=2, in_order=True)
    out_of_order = replayed_step_s(times, 8, 0.012, workers=4, prefetch=2, in_order=False)
    assert out_of_order < 0.7 * in_order
    assert out_of_order >= 0.012
    even = (0.001,)
    assert replayed_step_s(even, 8, 0.012, 4, 2, in_order=True) == pytest.approx(0.012, rel=0.02)
    assert replayed_step_s(even, 8, 0.001, 4, 2, in_order=True) == pytest.approx(0.002, rel=0.02)
    assert replayed_step_s(even, 8, 0.001, 4, 2, in_order=False) == pytest.approx(0.002, rel=0.02)


def test_workers_without_a_shard_are_counted():
    loader = replace(loader_facts(num_samples=None), is_iterable=True, num_workers=8, num_shards=2)
    seen = with_storage(None, loader=loader, natural=Settings(batch_size=64, num_workers=8))
    seen = replace(seen, usable_cpus=8.0, observation=observation(loading=loading_times(busy_s=3.0, num_building=2)))
    found = advice_against(Sickness.IDLE_WORKERS, seen)
    assert found is not None and "2 shards leave 6 of 8 workers without work" in found.action
