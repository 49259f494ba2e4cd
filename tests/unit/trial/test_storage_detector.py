"""Traps of stored datasets are found before the workers start, and streams that split themselves are known."""

from __future__ import annotations

import gzip
import io
import mmap
import os
import tarfile
import tempfile
import zipfile

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, get_worker_info

from autotune.model.storage_traps import TrapKind, trap_text
from autotune.trial.probe.loader_detector import _attributes
from autotune.trial.probe.storage_detector import num_shards, splits_among_workers, survives_fork, traps_of


class Holding(Dataset):
    """A dataset with one attribute."""

    def __init__(self, handle):
        self.handle = handle

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index


LINE = "test_storage_detector.py:27"
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def found(dataset, **loader):
    return {trap.kind: trap for trap in traps_of(DataLoader(dataset, **loader), "train.py:5")}


def test_an_lmdb_environment_opened_before_the_fork_is_named_with_line_and_cure(tmp_path):
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(tmp_path / "db")) as environment:
        traps = found(Subset(Holding([environment]), [0]), num_workers=2)
        text = trap_text(traps[TrapKind.LMDB_BEFORE_FORK])
        assert text.startswith(f"self.handle at {LINE} opens LMDB before workers are forked")
        assert "readonly=True, lock=False, readahead=False, meminit=False" in text
        assert not found(Holding(environment), num_workers=2, multiprocessing_context="spawn")


def test_an_open_hdf5_handle_is_named_and_a_closed_one_is_not(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        rows = file.create_dataset("rows", data=[1, 2])
        assert found(Holding(file))[TrapKind.HDF5_SHARED].where == LINE
        assert TrapKind.HDF5_SHARED in found(Holding({"rows": rows}))
    assert not found(Holding(file))


def test_an_open_file_is_named_and_a_closed_one_or_a_file_in_memory_is_not(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("some words\n")
    with path.open() as text, path.open("rb") as data, gzip.open(tmp_path / "a.gz", "wb") as written:
        for file in (text, data):
            assert found(Holding(file))[TrapKind.FILE_SHARED].where == LINE
            assert "all would move its one position" in trap_text(found(Holding(file))[TrapKind.FILE_SHARED])
            assert not found(Holding(file), multiprocessing_context="spawn", num_workers=1)
        assert not found(Holding(written))
        assert not found(Holding(io.BytesIO(b"in memory")))
    assert not found(Holding(text))


class Reading(Holding):
    """A dataset that holds its file by a reader, which has no samples."""

    def __init__(self, handle):
        super().__init__(None)
        self.reader = Holder(handle)


class Holder:
    def __init__(self, handle):
        self.handle = handle


def test_a_file_is_found_in_a_reader_and_behind_what_only_looks_like_a_file(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("some words\n")
    np.savez(tmp_path / "a.npz", rows=np.arange(3))
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(path, "words.txt")
    with path.open() as file, tempfile.NamedTemporaryFile() as named, tempfile.SpooledTemporaryFile() as spooled:
        assert TrapKind.FILE_SHARED in found(Reading(file)) and TrapKind.FILE_SHARED in found(Holding(named))
        assert not found(Holding(spooled)) and not spooled._rolled
        with np.load(tmp_path / "a.npz") as rows, tarfile.open(tmp_path / "a.tar") as tar:
            assert TrapKind.FILE_SHARED in found(Holding(rows))
            odd = [rows, tar.extractfile("words.txt"), io.TextIOWrapper(io.BytesIO()), file]
            odd[2].detach()
            assert TrapKind.FILE_SHARED in found(Holding(odd))


class ReadsAnew(Holding):
    """A dataset that opens its file anew in each process."""

    def __getitem__(self, index):
        if os.getpid() != self.opened_by:
            self.handle = open(self.handle.name)  # noqa: SIM115
        return self.handle.read()


class Seeds(Holding):
    """A dataset that asks for its worker, and reads through the file all the same."""

    def __getitem__(self, index):
        return get_worker_info().seed, self.handle.read()


class Attributes(dict):
    """Answers for attributes, and fails for others by an odd error."""

    def __getattr__(self, name):
        return self[name]


def test_files_with_a_position_in_every_worker_are_left_alone(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("some words\n")

    def begin(_):
        get_worker_info().dataset.handle = path.open()

    with path.open() as file, (tmp_path / "log").open("a+") as log, open("/dev/zero", "rb") as zeros:
        assert not found(ReadsAnew(file)) and TrapKind.FILE_SHARED in found(Seeds(file))
        assert TrapKind.FILE_SHARED in found(Holding([Attributes(), file]))
        assert not found(Holding(file), worker_init_fn=begin)
        assert not found(Holding(log)) and not found(Holding(zeros))
        mapped = Holding(path.open("rb"))
        mapped.rows = np.memmap(mapped.handle, dtype=np.uint8, mode="r")
        assert not found(mapped)
        mapped.handle.close()
        mapped = Holding(file)
        mapped.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert not found(mapped)


def test_an_open_archive_is_named_like_its_file(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", "some words")
        assert not found(Holding(archive))
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert TrapKind.FILE_SHARED in found(Holding(archive))
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(tmp_path / "a.zip", "a.zip")
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert TrapKind.FILE_SHARED in found(Holding(tar))
    assert not found(Holding(archive)) and not found(Holding(tar))


def test_many_python_objects_grow_in_workers_and_one_array_does_not():
    names = [str(number) for number in range(200_000)]
    trap = found(Holding(names), num_workers=1)[TrapKind.GROWING_OBJECTS]
    assert trap.where == LINE and "one array of numpy" in trap_text(trap)
    assert found(names, num_workers=1)[TrapKind.GROWING_OBJECTS].where == "train.py:5"
    assert not found(Holding(names), num_workers=0)
    assert not found(Holding(torch.arange(200_000)), num_workers=1)


def test_a_line_of_an_installed_package_is_no_line_of_the_user():
    names = [str(number) for number in range(200_000)]
    trap = found(Subset(Holding(0), names), num_workers=1)[TrapKind.GROWING_OBJECTS]
    assert (trap.name, trap.where) == ("Subset.indices", "train.py:5")
    assert not found(Subset(Holding(0), range(200_000)), num_workers=1)


class Decoder:
    """Stands in for a decoder on the device."""

    device = "cuda:0"


def test_a_decoder_on_cuda_in_forked_workers_is_named(monkeypatch):
    monkeypatch.setattr(Decoder, "__module__", "torchcodec.decoders")
    assert 'multiprocessing_context="spawn"' in trap_text(
        found(Holding(Decoder()), num_workers=1)[TrapKind.CUDA_IN_FORK]
    )
    assert not found(Holding(Decoder()), num_workers=1, multiprocessing_context="spawn")
    assert not survives_fork(Holding(Decoder()))
    monkeypatch.setattr(Decoder, "device", "cpu")
    assert survives_fork(Holding(Decoder()))
    assert not found(Holding(Decoder()), num_workers=1)


class Table:
    """Stands in for a dataset of Hugging Face after `shuffle`."""

    _indices = "a mapping"

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index


class Shuffled:
    """Stands in for the innards of a shuffled stream."""


class Streamed(IterableDataset):
    """Stands in for a stream of Hugging Face."""

    def __init__(self, shards, *, is_shuffled=False):
        self.num_shards = shards
        self._ex_iterable = Shuffled() if is_shuffled else None

    def __iter__(self):
        return iter(())


@pytest.fixture
def hugging_face(monkeypatch):
    for cls in (Table, Streamed):
        monkeypatch.setattr(cls, "__module__", "datasets.arrow_dataset")


def test_an_indices_mapping_of_arrow_is_named(hugging_face):
    table = Table()
    assert "flatten_indices()" in trap_text(found(table)[TrapKind.ARROW_INDICES])
    assert found(Holding(table))[TrapKind.ARROW_INDICES].where == LINE
    table._indices = None
    assert not found(table)


def test_fewer_shards_than_workers_are_named(hugging_face):
    trap = found(Streamed(2), num_workers=8)[TrapKind.FEW_SHARDS]
    assert trap_text(trap).startswith(
        "A stream of 2 shards for 8 workers at train.py:5 leaves some workers without data."
    )
    assert not found(Streamed(8), num_workers=8)
    trap = found(Streamed(1, is_shuffled=True), num_workers=8)[TrapKind.SHUFFLE_TO_ONE]
    assert "max_buffer_input_shards=1" in trap_text(trap)


def test_shards_of_webdataset_are_counted(tmp_path):
    webdataset = pytest.importorskip("webdataset")
    stream = webdataset.WebDataset([f"{n}.tar" for n in range(3)], shardshuffle=False).decode()
    assert num_shards(stream) == 3 and splits_among_workers(DataLoader(stream))
    assert TrapKind.FEW_SHARDS in found(stream, num_workers=4)


def share():
    return get_worker_info()


class Direct(IterableDataset):
    def __iter__(self):
        return iter(range(4)) if torch.utils.data.get_worker_info() else iter(())


class ByFunction(IterableDataset):
    def __iter__(self):
        yield from [share()]


class ByMethod(IterableDataset):
    def __iter__(self):
        yield self.mine()

    def mine(self):
        return [get_worker_info() for _ in range(2)]


class Whole(IterableDataset):
    def __iter__(self):
        return iter(range(4))


@pytest.mark.parametrize("kind", [Direct, ByFunction, ByMethod])
def test_a_stream_that_asks_for_its_worker_splits_itself(kind):
    assert splits_among_workers(DataLoader(kind()))


def test_a_stream_that_never_asks_does_not_split_itself():
    assert not splits_among_workers(DataLoader(Whole()))
    assert not splits_among_workers(DataLoader(Holding(1)))


def test_a_pipe_of_torch_splits_with_its_filter():
    from torch.utils.data.datapipes.iter import IterableWrapper

    assert not splits_among_workers(DataLoader(IterableWrapper(range(4))))
    assert splits_among_workers(DataLoader(IterableWrapper(range(4)).sharding_filter()))


class Piped(IterableDataset):
    """A stream with an attribute that WebDataset uses for its stages, and others for anything."""

    def __init__(self, pipeline):
        self.pipeline = pipeline

    def __iter__(self):
        return iter(self.pipeline)


@pytest.mark.parametrize("pipeline", [iter("abc"), object(), None], ids=["iterator", "transform", "none"])
def test_a_pipeline_that_is_no_list_of_stages_is_left_alone(pipeline):
    dataset = Piped(pipeline)
    assert not splits_among_workers(DataLoader(dataset))
    assert num_shards(dataset) is None
    assert pipeline is None or not hasattr(pipeline, "__next__") or list(dataset) == ["a", "b", "c"]


class Unready(IterableDataset):
    """A stream whose attributes fail before its first epoch."""

    @property
    def pipeline(self):
        raise RuntimeError("no epoch yet")

    def __iter__(self):
        return iter(range(4))


def test_a_stream_whose_attributes_fail_is_read_as_one_without_them():
    read = _attributes(DataLoader(Unready()), "train.py:5")
    assert read["is_iterable"] and not read["splits_among_workers"] and read["num_shards"] is None
