from __future__ import annotations

import torch
from torch.utils.data import DataLoader, Dataset

from autotune.trial.observing.loading import LoadingWatch, TimedWorkerInit


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
    assert (times.num_batches, times.num_samples, times.num_files, times.read_bytes) == (2, 8, 8, 800)
    assert 0 < times.open_s + times.read_s < times.busy_s


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
