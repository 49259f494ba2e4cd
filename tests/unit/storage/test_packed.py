"""Packed samples come back as they were, in every format, process and order."""

from __future__ import annotations

import gc
import os
import pickle
import warnings

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from autotune.errors import UsageError
from autotune.storage import Packed
from autotune.storage.packed_formats import FORMATS
from tests.unit.storage.packs import pack_here


class Mixed:
    """Samples with every kind of leaf, of different sizes."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return {
            "image": np.full((index % 3 + 1, 5, 3), index, np.uint8),
            "tensor": torch.full((2, 3), index / 7),
            "half": torch.tensor([index], dtype=torch.bfloat16),
            "label": index,
            "class": np.int64(index),
            "raw": b"\xff\xd8\xff" + bytes(index),
            "list": [f"ü {index}", None, True, 0.1, (torch.tensor(index),)],
        }


class Rows:
    """Samples of one size."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return torch.arange(4) + index, index


def are_equal(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(are_equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(are_equal, one, other))
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return bool(np.array_equal(one, other)) if isinstance(one, np.ndarray) else one == other


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("dataset", [Mixed(), Rows()], ids=["mixed", "rows"])
def test_every_sample_comes_back_as_it_was(tmp_path, format_name, dataset):
    packed = Packed(pack_here(dataset, tmp_path, format_name), checks=True)
    assert len(packed) == len(dataset)
    for index in (7, 0, 9, 3):
        assert are_equal(packed[index], dataset[index])
    assert are_equal(packed[-1], dataset[9])
    assert all(map(are_equal, packed.__getitems__([8, 1, 8]), [dataset[8], dataset[1], dataset[8]]))
    with pytest.raises(IndexError):
        packed[10]


@pytest.mark.parametrize("format_name", FORMATS)
def test_workers_read_what_the_parent_has_opened_before(tmp_path, format_name):
    packed = Packed(pack_here(Rows(), tmp_path, format_name))
    assert packed[0][1] == 0  # opens the first part in this process
    loader = DataLoader(packed, batch_size=2, num_workers=2, multiprocessing_context="fork")
    assert [label for _, labels in loader for label in labels.tolist()] == list(range(10))
    assert packed[9][1] == 9


def test_a_spawned_worker_reads_what_the_parent_has_opened_before(tmp_path):
    packed = Packed(pack_here(Rows(), tmp_path, "npy"))
    assert packed[9][1] == 9
    loader = DataLoader(packed, num_workers=1, batch_size=10, multiprocessing_context="spawn")
    assert next(iter(loader))[1].tolist() == list(range(10))


def test_two_datasets_over_one_folder_live_side_by_side(tmp_path):
    folder = pack_here(Rows(), tmp_path, "lmdb")
    train, validation = Packed(folder), Packed(folder, transform=lambda sample: sample[1] * 2)
    assert train[4][1] == 4 and validation[4] == 8
    assert validation.__getitems__([1, 2]) == [2, 4]


def test_a_pickled_dataset_holds_no_open_file(tmp_path):
    packed = Packed(pack_here(Rows(), tmp_path, "npy"))
    assert packed[0][1] == 0
    assert pickle.loads(pickle.dumps(packed))[5][1] == 5


def test_an_npy_part_is_an_array_that_numpy_maps(tmp_path):
    pack_here(Rows(), tmp_path, "npy")
    array = np.load(tmp_path / "part-00000.npy", mmap_mode="r")
    assert array.dtype == np.uint8 and array.ndim == 1


def test_a_shard_is_read_by_webdataset(tmp_path):
    webdataset = pytest.importorskip("webdataset")
    pack_here(Mixed(), tmp_path, "webdataset")
    shards = str(tmp_path / "part-{00000..00002}.tar")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # It leaves its files to the garbage collector.
        samples = list(webdataset.WebDataset(shards, shardshuffle=False).decode())
        gc.collect()
    assert [sample["label.json"] for sample in samples] == list(range(10))
    assert np.array_equal(samples[4]["image.npy"], Mixed()[4]["image"])
    assert samples[5]["raw.jpg"] == Mixed()[5]["raw"]


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_changed_byte_is_noticed(tmp_path, format_name):
    packed = Packed(pack_here(Mixed(), tmp_path, format_name), checks=True)
    path = next(tmp_path.glob("part-00001.[nlht]*"))
    data = bytearray(path.read_bytes())
    text = "ü 5".encode()
    assert text in data
    data[data.index(text) + 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(UsageError, match="sample 5 has another checksum"):
        packed[5]


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_link_laid_under_a_temporary_name_leads_nobody_out(tmp_path, format_name):
    """In a folder of several people somebody may know the process, and hence a name made of its number."""
    (tmp_path / "victim").write_bytes(b"kept")
    packed = tmp_path / "packed"
    packed.mkdir()
    suffixes = ("npy", "lmdb", "h5", "hdf5", "tar", "index", "json")
    for name in ("packed.json", *(f"part-{n:05d}.{suffix}" for n in range(3) for suffix in suffixes)):
        (packed / f".{name}.{os.getpid()}.tmp").symlink_to(tmp_path / "victim")
    pack_here(Mixed(), packed, format_name)
    assert (tmp_path / "victim").read_bytes() == b"kept"


def test_an_object_without_a_packed_form_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"holds builtins\.set"):
        pack_here([{1, 2}], tmp_path, "npy")


def test_a_folder_without_a_manifest_says_what_to_do(tmp_path):
    with pytest.raises(UsageError, match="holds no packed dataset"):
        Packed(tmp_path)
    pack_here(Rows(), tmp_path, "npy")
    (tmp_path / "part-00000.json").write_text("{}")
    (tmp_path / "packed.json").unlink()
    with pytest.raises(UsageError, match="is not packed to the end"):
        Packed(tmp_path)


def test_a_short_part_is_noticed_at_the_first_sample(tmp_path):
    packed = Packed(pack_here(Rows(), tmp_path, "npy"))
    path = tmp_path / "part-00001.npy"
    path.write_bytes(path.read_bytes()[:-1])
    assert packed[3][1] == 3
    with pytest.raises(UsageError, match="does not have the"):
        packed[4]
