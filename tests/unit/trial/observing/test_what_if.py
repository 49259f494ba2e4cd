"""What is tried on a dataset's samples: reads, decoders, repeated work, whole batches. No duration is compared."""

from __future__ import annotations

import io
import os
import signal

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from autotune.storage.packed_formats import FORMATS
from autotune.trial.observing.repeated_work import repeated_work
from autotune.trial.observing.storage_what_if import WhatIf


@pytest.fixture(autouse=True)
def tries_everything(monkeypatch):
    """No share of time decides what is tried: a busy machine would decide otherwise now and then."""
    for name in ("LEAST_READ_SHARE", "LEAST_DECODE_SHARE"):
        monkeypatch.setattr(f"autotune.trial.observing.storage_what_if.{name}", 0.0)
    monkeypatch.setattr("autotune.trial.observing.storage_what_if.MOST_SINGLE_S", 1.0)
    monkeypatch.setattr("autotune.trial.observing.storage_what_if.LIMIT_S", 300.0)


def measured(loader):
    what_if = WhatIf()
    what_if.iteration_begins(loader)
    return what_if.measure()


class Files(Dataset):
    """A file per sample, and noise on what is read."""

    def __init__(self, folder, num_samples=12, size=2000):
        self.folder, self.num_samples = folder, num_samples
        for index in range(num_samples):
            (folder / f"{index}.bin").write_bytes(bytes([index]) * size)

    def __len__(self):
        return self.num_samples

    def __getitem__(self, index):
        data = (self.folder / f"{index}.bin").read_bytes()
        pixels = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        noise = torch.rand(1)
        return pixels + noise


def test_small_files_are_packed_in_every_format_and_read_back(tmp_path):
    found = measured(DataLoader(Files(tmp_path), batch_size=4, shuffle=True))
    assert found is not None
    assert (found.reader, found.num_reads, found.read_bytes, found.num_samples) == ("files", 1.0, 2000, 12)
    assert [each.format for each in found.packed] == list(FORMATS)
    assert all(each.sample_bytes >= 2000 for each in found.packed)
    assert found.example.startswith(str(tmp_path)) and len(found.sample_times_s) == 12


def test_the_work_before_the_first_random_line_is_kept(tmp_path):
    dataset = Files(tmp_path)
    cut = repeated_work(Subset(dataset, range(4)), [3, 1, 0])
    assert cut is not None
    assert cut.first_random == "noise = torch.rand(1)" and cut.where.startswith("test_what_if.py:")
    assert [list(value) for value in cut.values] == [["pixels"]] * 3
    assert [value["pixels"][0].item() for value in cut.values] == [3, 1, 0]


class Kept(Dataset):
    """Counts how often the statements after the random line run."""

    def __init__(self):
        self.num_whole = self.num_rests = 0

    def __len__(self):
        return 8

    def __getitem__(self, index):
        self.num_whole += 1
        row = np.full(10, index)
        noise = np.random.rand()
        self.num_rests += 1
        return row + noise


def test_the_statements_after_the_cut_run_alone_on_the_kept_values():
    dataset = Kept()
    cut = repeated_work(dataset, [1, 2, 3])
    assert cut is not None and cut.rest_s is not None and cut.rest_s > 0
    assert dataset.num_rests > dataset.num_whole


def test_a_line_within_a_condition_cannot_run_alone():
    class Sometimes(Kept):
        def __getitem__(self, index):
            row = np.full(10, index)
            if index >= 0:
                row = row + np.random.rand()
            return row

    cut = repeated_work(Sometimes(), [1, 2, 3])
    assert cut is not None and cut.rest_s is None


def test_statements_that_need_more_than_the_kept_values_are_left_to_the_difference():
    class Named(Kept):
        def __getitem__(self, index):
            row = np.full(10, index)
            noise = np.random.rand()
            return row * {1: 1.0, 2: 2.0, 3: 3.0}[index] + noise

    cut = repeated_work(Named(), [1, 2, 3])
    assert cut is not None and cut.rest_s is None


def test_the_handing_over_of_batches_is_measured_with_workers(tmp_path):
    found = measured(DataLoader(Files(tmp_path), batch_size=4, num_workers=2))
    assert found is not None and found.hand_over_s is not None and found.take_s is not None
    assert 0 < found.take_s <= found.hand_over_s


def test_forked_processes_are_asked_nothing_that_only_cuda_can_answer(tmp_path, monkeypatch):
    ours, is_pinned = os.getpid(), torch.Tensor.is_pinned

    def refuse_in_a_fork(tensor, *args):
        if os.getpid() != ours:
            raise RuntimeError("CUDA error: initialization error")
        return is_pinned(tensor, *args)

    monkeypatch.setattr(torch.Tensor, "is_pinned", refuse_in_a_fork)
    what_if = WhatIf()
    loader = DataLoader(Files(tmp_path), batch_size=4, num_workers=2)
    what_if.iteration_begins(loader)
    assert what_if.measure() is not None, what_if.failure


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Double:
    def __call__(self, value):
        return value * 2


class Jitter:
    def __call__(self, value):
        return value + np.random.default_rng().integers(1, 1 << 40)


class Transformed(Dataset):
    def __init__(self, *transforms):
        self.transform = Compose(list(transforms))

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.transform(np.full(1000, index)), index


def test_a_list_of_transforms_is_cut_before_the_first_with_another_result():
    # A generator of the transform's own changes no common state: the results tell.
    cut = repeated_work(Transformed(Double(), Jitter(), Double()), list(range(8)))
    assert cut is not None and cut.first_random == "Jitter"
    assert [(array[0], label) for array, label in cut.values] == [(2 * index, index) for index in range(8)]


def test_a_dataset_without_random_numbers_repeats_whole_samples():
    dataset = Transformed(Double())
    cut = repeated_work(dataset, [5, 2])
    assert cut is not None and (cut.where, cut.share) == ("", 1.0)
    assert [label for _, label in cut.values] == [5, 2]


def test_a_dataset_of_random_numbers_repeats_nothing():
    class Random(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return torch.rand(4)

    assert repeated_work(Random(), list(range(8))) is None


def test_the_transforms_of_the_dataset_are_as_before():
    dataset = Transformed(Double(), Jitter())
    before = list(dataset.transform.transforms)
    repeated_work(dataset, [0, 1])
    assert dataset.transform.transforms == before


def test_tensors_in_memory_are_indexed_with_a_whole_batch():
    loader = DataLoader(TensorDataset(torch.randn(64, 3), torch.arange(64)), batch_size=16)
    found = measured(loader)
    assert found is not None and found.batched_s is not None and not found.packed

    class Odd(Dataset):
        """Takes lists, and gives something else for them."""

        def __len__(self):
            return 64

        def __getitem__(self, index):
            return torch.zeros(3) if isinstance(index, int) else torch.ones(3)

    found = measured(DataLoader(Odd(), batch_size=16))
    assert found is not None and found.batched_s is None


def test_hdf5_rows_are_seen_with_the_rows_of_a_chunk(tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py")
    monkeypatch.chdir(tmp_path)
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("rows", data=np.zeros((512, 8), np.float32), chunks=(128, 8), compression="gzip")

    class Rows(Dataset):
        def __init__(self):
            self.file = None

        def __len__(self):
            return 512

        def __getitem__(self, index):
            self.file = self.file or h5py.File("rows.h5", "r")  # a relative name
            return self.file["rows"][index] + np.random.rand()

    found = measured(DataLoader(Rows(), batch_size=8, shuffle=True))
    assert found is not None
    assert (found.reader, found.chunk_samples, found.read_bytes) == ("HDF5", 128, 32)
    assert found.example == str(tmp_path / "rows.h5")
    assert [each.format for each in found.packed] == list(FORMATS)


def test_recorded_images_are_decoded_by_every_installed_decoder(tmp_path):
    image = pytest.importorskip("PIL.Image")

    class Pictures(Dataset):
        def __init__(self):
            pixels = np.random.default_rng(0).integers(0, 256, (256, 256, 3), dtype=np.uint8)
            file = io.BytesIO()
            image.fromarray(pixels).save(file, "JPEG")
            self.data = file.getvalue()

        def __len__(self):
            return 16

        def __getitem__(self, index):
            return torch.from_numpy(np.array(image.open(io.BytesIO(self.data)).convert("RGB"))) + torch.rand(1)

    found = measured(DataLoader(Pictures(), batch_size=4))
    assert found is not None
    assert found.decoder in {each.name for each in found.decoders} and found.images_per_sample == 1.0
    assert all((each.sure_speedup is None) == (each.name == found.decoder) for each in found.decoders)


def test_a_stream_and_a_crash_tell_nothing():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(4))

    class Crashing(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            os.kill(os.getpid(), signal.SIGKILL)

    class Raising(Crashing):
        def __getitem__(self, index):
            raise RuntimeError("only in workers")

    assert measured(DataLoader(Stream())) is None
    assert measured(DataLoader(Crashing())) is None
    assert measured(DataLoader(Raising())) is None


def test_the_parents_random_numbers_stay(tmp_path):
    loader = DataLoader(Files(tmp_path), batch_size=4, shuffle=True)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert measured(loader) is not None
    assert torch.equal(torch.get_rng_state(), before)


class Broken(TensorDataset):
    """A dataset that fails when its samples are built again, in its own way."""

    def __init__(self, how):
        super().__init__(torch.zeros(8, 2))
        self.how = how

    def __getitem__(self, index):
        if self.how == "raises":
            raise LookupError("no sample here")
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("how", "words"), [("raises", "LookupError: no sample here"), ("dies", "exit code -9")])
def test_a_failure_is_told(how, words):
    what_if = WhatIf()
    loader = DataLoader(Broken(how), batch_size=4)
    what_if.iteration_begins(loader)
    assert what_if.measure() is None
    assert words in what_if.failure


def test_a_loader_built_within_the_for_statement_is_tried_too(tmp_path):
    what_if = WhatIf()
    what_if.iteration_begins(DataLoader(Files(tmp_path), batch_size=4))
    found = what_if.measure()
    assert found is not None and found.num_samples == 12
