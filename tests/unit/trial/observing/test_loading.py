from __future__ import annotations

import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from autotune.trial.observing.build_parts import processor_s
from autotune.trial.observing.loader_work import LoadingLog, LoadingWatch, TimedWorkerInit


class Files(Dataset):
    def __init__(self, folder):
        self.folder = folder
        for index in range(8):
            (folder / f"{index}.bin").write_bytes(bytes(100))

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.frombuffer(bytearray((self.folder / f"{index}.bin").read_bytes()), dtype=torch.uint8)


def test_without_workers_the_process_itself_is_timed_while_it_is_asked(tmp_path):
    watch = LoadingWatch()
    loader = DataLoader(Files(tmp_path), batch_size=4)
    watch.iteration_ends(loader)
    watch.iteration_begins(loader)
    list(loader)
    watch.begin()
    list(loader)
    times = watch.end()
    list(loader)
    later = watch.end()
    assert times is not None and later is not None and later.num_files == times.num_files
    # One of its two batches was split, the other left alone.
    assert (times.num_batches, times.num_samples, times.num_files, times.read_bytes) == (1, 4, 4, 400)
    assert 0 < times.open_s + times.read_s <= times.busy_s


def log_of(*figures):
    log = LoadingLog(None, 1)
    for each in figures:
        log.add(0, each)
    return log


SPLIT = {"batches": 2, "samples": 32, "busy": 3.0, "cpu": 2.0, "open": 1.0, "read": 0.5, "files": 1536, "bytes": 9600}


def test_what_timing_takes_file_by_file_is_no_part_of_the_building():
    times = log_of(SPLIT, {"plain_samples": 16, "plain_busy": 1.0, "plain_cpu": 0.75}).times()
    assert times is not None and (times.num_samples, times.num_files) == (32, 1536)
    assert (times.busy_s, times.cpu_s, times.open_s, times.rest_s) == (2.0, 1.5, 1.0, 0.5)


def test_a_single_batch_takes_what_it_took_while_it_was_split():
    times = log_of(SPLIT).times()
    assert times is not None and (times.busy_s, times.cpu_s) == (3.0, 2.0)


def test_batches_that_were_quicker_by_chance_than_the_files_of_the_others_are_files_alone():
    times = log_of(SPLIT, {"plain_samples": 16, "plain_busy": 0.25, "plain_cpu": 0.25}).times()
    assert times is not None and times.busy_s == 1.5 and times.rest_s == 0.0


class Rows(Dataset):
    """Built a batch at a time; notes how large each was."""

    def __init__(self):
        self.sizes = []

    def __len__(self):
        return 64

    def __getitems__(self, indices):
        self.sizes.append(len(indices))
        return torch.zeros(len(indices), 2)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.zeros(64, 2))


def watched(dataset, **options):
    watch = LoadingWatch()
    loader = DataLoader(dataset, batch_size=4, collate_fn=lambda batch: batch, **options)
    watch.iteration_begins(loader)
    watch.begin()
    list(loader)
    watch.end()
    return watch


def test_a_larger_batch_is_built_of_samples_that_the_loader_asked_for_in_turns_with_its_own():
    rows = Rows()
    seconds = watched(rows).build_s_by_size(8)
    assert seconds is not None and all(each > 0 for each in seconds)
    assert set(rows.sizes[16:]) == {4, 32} and rows.sizes.count(4) == 16 + 8 * (rows.sizes.count(32) + 1)


def test_a_stream_or_a_dataset_that_refuses_builds_no_larger_batch():
    class Fixed(Rows):
        def __getitems__(self, indices):
            if len(indices) != 4:
                raise ValueError("four at a time")
            return torch.zeros(4, 2)

    assert watched(Stream()).build_s_by_size(8) is None
    assert watched(Fixed()).build_s_by_size(8) is None
    assert LoadingWatch().build_s_by_size(8) is None


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_of_workers_enough_is_seen_when_every_second_one_has_built_a_split_batch_and_another():
    watch = LoadingWatch()
    assert watch.has_enough
    loader = DataLoader(Rows(), batch_size=4, num_workers=4)
    watch.iteration_begins(loader)
    watch.begin()
    log = loader.worker_init_fn.log
    for process in (0, 3):
        assert not watch.has_enough
        log.add(process, {"batches": 1, "samples": 4, "busy": 1.0})
    assert not watch.has_enough
    log.add(3, {"plain_samples": 4, "plain_busy": 1.0})
    assert watch.has_enough


def test_a_loader_that_built_nothing_meanwhile_says_nothing():
    watch = LoadingWatch()
    watch.begin()
    assert watch.end() is None


def test_the_scripts_own_worker_init_is_called_and_put_back(tmp_path):
    called = []
    watch = LoadingWatch()
    loader = DataLoader(Files(tmp_path), batch_size=4, num_workers=2, worker_init_fn=called.append)
    watch.iteration_begins(loader)
    assert isinstance(loader.worker_init_fn, TimedWorkerInit)
    watch.iteration_ends(loader)
    assert loader.worker_init_fn == called.append


def test_work_is_counted_however_short_it_is():
    ran_s = counted_s = 0.0
    for _ in range(20):
        began, before = time.thread_time(), processor_s()
        sum(range(5000))
        counted_s += processor_s() - before
        ran_s += time.thread_time() - began
    assert counted_s > ran_s / 2
