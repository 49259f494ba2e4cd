from __future__ import annotations

import pytest

from autotune.diagnose.advice.advise import advise
from autotune.diagnose.advice.loading_advice import (
    copy_while_training,
    decode_elsewhere,
    keep_workers,
    more_threads,
    more_workers,
    pack_small_files,
    share_processors,
)
from autotune.diagnose.advice.step_times import load_s
from autotune.measure.bottleneck import BottleneckKind
from autotune.model.diagnosis import Sickness
from autotune.model.observation import DeviceTimes
from autotune.settings import Settings

from ..diagnoses import diagnosis, loading_times, observation, step_times
from ..facts import loader_facts, script_facts

SLOW = {"data_wait_fraction": 0.8, "ceiling_samples_per_second": 3200.0, "bottleneck": BottleneckKind.LOADER}
"""80 of 100 ms are waited; training alone takes 20."""
WAITING = loading_times(busy_s=0.8, cpu_s=0.01)
"""80 ms a batch, nearly all of it waiting for a store."""
IDLE = {"main_cpu_s": 0.2}


def test_a_loader_that_waits_gets_as_many_workers_as_hide_it_and_no_more():
    found = more_workers(diagnosis(**SLOW, observation=observation(loading=WAITING, **IDLE)))
    assert found is not None and found.sickness is Sickness.LOADER
    assert found.settings == {"num_workers": 4}
    assert found.gain == pytest.approx(100 / 20.5, rel=0.02)
    assert "train.py:10" in found.where and "80.0 ms" in found.source


def test_workers_that_share_two_cores_with_training_promise_what_the_cores_allow():
    busy = observation(loading=loading_times(busy_s=0.8, cpu_s=0.8), main_cpu_s=1.0)
    found = more_workers(diagnosis(**SLOW, usable_cpus=2.0, observation=busy))
    assert found is not None
    assert found.gain == pytest.approx(100 / (100.5 / 2), rel=0.02)


def test_workers_that_finished_no_batch_while_observed_build_batches_as_well():
    """Sixteen workers take 1.1 s for a batch; five of them finished one in the short time of the observation."""
    seen = observation(loading=loading_times(num_batches=5, busy_s=5.5, cpu_s=5.5, num_building=5))
    changes = {**SLOW, "data_wait_fraction": 0.3, "natural": Settings(num_workers=16), "observation": seen}
    assert load_s(diagnosis(**changes)) == pytest.approx(1.1)
    stream = script_facts(loader=loader_facts(is_iterable=True))
    assert load_s(diagnosis(**changes, facts=stream)) == pytest.approx(0.5)


def test_workers_that_cost_more_to_hand_over_than_they_save_are_not_advised():
    small = {"samples_per_second": 64000.0, "ceiling_samples_per_second": 80000.0, "data_wait_fraction": 0.2}
    loading = loading_times(busy_s=0.002, cpu_s=0.002)
    assert more_workers(diagnosis(**small, observation=observation(loading=loading))) is None


def test_a_ceiling_from_a_quieter_moment_promises_nothing_that_is_not_waited_for():
    found = more_workers(
        diagnosis(data_wait_fraction=0.1, ceiling_samples_per_second=6400.0, observation=observation(**IDLE))
    )
    assert found is not None and found.gain == pytest.approx(100 / 90.5, rel=0.02)


def test_a_stream_without_workers_shards_itself_and_is_left_alone():
    facts = script_facts(loader=loader_facts(is_iterable=True))
    assert more_workers(diagnosis(**SLOW, facts=facts, observation=observation(loading=WAITING))) is None


FOREIGN = script_facts(loader=None, foreign_loader="SPDL")


def test_a_library_whose_threads_leave_processors_free_gets_more_threads():
    """Ten steps of 100 ms wait 60 ms each; two threads took 0.5 s together, and training as much."""
    threads = observation(loading=loading_times(busy_s=0.5, cpu_s=0.5, num_building=2), main_cpu_s=1.0)
    waiting = {**SLOW, "data_wait_fraction": 0.6, "facts": FOREIGN, "natural": Settings()}
    found = more_threads(diagnosis(**waiting, usable_cpus=8.0, observation=threads))
    assert found is not None and found.is_bound and "concurrency" in found.action
    assert found.gain == pytest.approx(100 / 40) and "50.0 ms of processor time" in found.source
    shared = more_threads(diagnosis(**waiting, usable_cpus=1.25, observation=threads))
    assert shared is not None and shared.gain == pytest.approx(100 / 80)
    assert more_threads(diagnosis(**waiting, usable_cpus=1.0, observation=threads)) is None


def test_small_files_promise_what_is_left_when_opening_and_reading_are_gone():
    split = loading_times(busy_s=0.8, cpu_s=0.8, open_s=0.5, read_s=0.2, num_files=6400, read_bytes=6400 * 200)
    found = pack_small_files(diagnosis(**SLOW, observation=observation(loading=split)))
    assert found is not None and found.sickness is Sickness.SMALL_FILES
    assert found.gain == pytest.approx(100 / 30, rel=0.02)
    assert (
        "LMDB" in found.action and "10 opened per sample" in found.source and "opening files takes 62%" in found.source
    )


@pytest.mark.parametrize(
    "changes",
    [{"read_bytes": 6400 * (4 << 20)}, {"num_files": 20}, {"open_s": 0.05, "read_s": 0.05}, {"num_files": 0}],
    ids=["large files", "few files", "little time in them", "none"],
)
def test_files_that_are_large_few_or_quick_are_no_small_files(changes):
    values = {"busy_s": 0.8, "open_s": 0.5, "read_s": 0.2, "num_files": 6400, "read_bytes": 6400 * 200, **changes}
    assert pack_small_files(diagnosis(**SLOW, observation=observation(loading=loading_times(**values)))) is None


def test_nothing_about_loading_is_advised_where_nobody_waits_for_it():
    split = loading_times(busy_s=0.8, open_s=0.5, read_s=0.2, num_files=6400, read_bytes=6400)
    healthy = diagnosis(observation=observation(loading=split))
    assert pack_small_files(healthy) is None and more_workers(healthy) is None and decode_elsewhere(healthy) is None


FILES_READ = {"num_files": 6400, "read_bytes": 6400}


def test_with_workers_faster_loading_ends_at_what_training_takes():
    split = loading_times(busy_s=1.99, open_s=1.9, **FILES_READ)
    found = pack_small_files(
        diagnosis(**SLOW, natural=Settings(batch_size=64, num_workers=2), observation=observation(loading=split))
    )
    # A step of 100 ms is two workers at 199 ms a batch; training takes 20 ms, and half a millisecond to take a batch.
    assert found is not None and found.gain == pytest.approx(100 / 20.5, rel=0.01)


def test_workers_that_share_the_processors_with_training_gain_what_the_processors_allow():
    """Training by 80 ms of two threads, and 120 ms of workers, fill two processors; without reading 140 ms are left."""
    split = loading_times(busy_s=1.2, cpu_s=1.2, open_s=0.6, **FILES_READ)
    seen = observation(loading=split, main_cpu_s=0.8)
    found = pack_small_files(
        diagnosis(
            **{**SLOW, "data_wait_fraction": 0.7},
            natural=Settings(batch_size=64, num_workers=2),
            usable_cpus=2.0,
            observation=seen,
        )
    )
    assert found is not None and found.gain == pytest.approx(200.5 / 140.5, rel=0.01)


def test_a_disturbed_look_at_the_workers_does_not_make_them_busier_than_their_steps():
    calm, disturbed = (
        pack_small_files(
            diagnosis(
                **SLOW,
                natural=Settings(batch_size=64, num_workers=2),
                observation=observation(loading=loading_times(busy_s=busy_s, open_s=0.5 * busy_s, **FILES_READ)),
            )
        )
        for busy_s in (2.0, 6.0)
    )
    assert calm is not None and disturbed is not None
    assert disturbed.gain == pytest.approx(calm.gain, rel=0.01) and calm.gain == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize(("is_cpu", "word"), [(True, "resized"), (False, "DALI")])
def test_decoding_goes_to_the_device_where_there_is_one(is_cpu, word):
    split = loading_times(busy_s=0.8, decode_s=0.6, decoder="PIL")
    found = decode_elsewhere(diagnosis(**SLOW, is_cpu=is_cpu, observation=observation(loading=split)))
    assert found is not None and word in found.action and "PIL" in found.source
    assert found.is_bound and found.gain == pytest.approx(100 / 40, rel=0.01)


def test_workers_that_start_anew_every_epoch_are_kept():
    sick = diagnosis(natural=Settings(batch_size=64, num_workers=2), restart_s=1.0, epoch_s=4.0)
    found = keep_workers(sick)
    assert found is not None and found.settings == {"persistent_workers": True}
    assert found.gain == pytest.approx(1.25)
    assert keep_workers(diagnosis(restart_s=1.0, epoch_s=4.0)) is None


def test_a_loader_that_is_built_for_every_epoch_is_to_be_built_once():
    facts = script_facts(loader=loader_facts(is_rebuilt=True))
    for is_persistent in (False, True):
        own = Settings(batch_size=64, num_workers=2, persistent_workers=is_persistent)
        found = keep_workers(diagnosis(natural=own, facts=facts, restart_s=1.0, epoch_s=4.0))
        assert found is not None and "once, before the epochs" in found.action and not found.settings


def test_copies_are_measured_against_the_step_as_it_was_without_a_profiler():
    device = DeviceTimes(num_steps=10, busy_s=0.9, copy_s=0.3)
    sick = diagnosis(is_cpu=False, observation=observation(device=device))
    found = copy_while_training(sick)
    assert found is not None and found.gain == pytest.approx(1 / 0.7)
    assert copy_while_training(diagnosis()) is None


def test_contention_is_for_jobs_with_workers_and_several_threads():
    sick = {"bottleneck": BottleneckKind.CPU_CONTENTION, "ceiling_samples_per_second": 1280.0}
    several = Settings(batch_size=64, num_workers=2, intra_op_threads=2)
    found = share_processors(diagnosis(**sick, natural=several))
    assert found is not None and found.is_bound and found.gain == pytest.approx(2.0)
    assert share_processors(diagnosis(**sick, natural=Settings(intra_op_threads=2))) is None


@pytest.mark.parametrize(("num_busy", "is_advised"), [(1.4, False), (6.0, True)])
def test_beside_a_device_fewer_threads_are_for_processes_that_compute_in_several(num_busy: float, is_advised: bool):
    sick = {"bottleneck": BottleneckKind.CPU_CONTENTION, "ceiling_samples_per_second": 1280.0, "is_cpu": False}
    several = Settings(batch_size=64, num_workers=2, intra_op_threads=16)
    busy = observation(main_cpu_s=num_busy, cpu_wall_s=1.0)
    assert (share_processors(diagnosis(**sick, natural=several, observation=busy)) is not None) is is_advised


def test_threads_promise_no_more_than_the_workers_processor_time_allows():
    sick = {"bottleneck": BottleneckKind.CPU_CONTENTION, "ceiling_samples_per_second": 1280.0}
    several = Settings(batch_size=64, num_workers=2, intra_op_threads=2)
    builds = observation(loading=loading_times(busy_s=2.0, cpu_s=1.6))  # 160 ms a batch, of two workers
    found = share_processors(diagnosis(**sick, natural=several, observation=builds))
    assert found is not None and found.gain == pytest.approx(1.25)


def test_advice_is_in_order_of_expected_gain_and_a_bound_counts_half():
    split = loading_times(busy_s=0.8, cpu_s=0.8, open_s=0.5, read_s=0.2, num_files=6400, read_bytes=6400 * 200)
    sick = diagnosis(**SLOW, usable_cpus=2.0, observation=observation(steps=step_times(), loading=split))
    found = advise(sick)
    assert [advice.sickness for advice in found][:2] == [Sickness.SMALL_FILES, Sickness.LOADER]
    gains = [advice.expected_gain for advice in found]
    assert gains == sorted(gains, reverse=True)


def test_a_healthy_script_is_given_no_advice():
    assert advise(diagnosis()) == ()
