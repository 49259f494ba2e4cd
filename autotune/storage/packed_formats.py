"""The formats of packed parts: a writer and a reader for each.

| format | a part is | a sample is |
| --- | --- | --- |
| npy | one array of bytes, for `numpy.load(mmap_mode="r")` | a range of the array |
| lmdb | one database file | the value of the key with the sample's number |
| hdf5 | one file with the dataset `samples` | a row and a chunk if all samples have one size, else a range of bytes |
| webdataset | one tar file, a shard of WebDataset | the members with the sample's number |
"""

from __future__ import annotations

import ctypes
import io
import mmap
import os
import tarfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from autotune.errors import HostError
from autotune.storage.sample_bytes import Leaf, num_leaves, split_record, to_record

FORMATS = ("npy", "lmdb", "hdf5", "webdataset")
SUFFIXES = {"npy": ".npy", "lmdb": ".lmdb", "hdf5": ".h5", "webdataset": ".tar"}
LIBRARIES = {"lmdb": "lmdb", "hdf5": "h5py"}
"""Packages behind the formats; npy and tar files need none."""
TAR_BLOCK = 512
KEY_DIGITS = 9


class Range(tuple[int, int]):
    """Offset and length of a sample in its part, in bytes; the offset is 0 where the format finds samples itself."""

    __slots__ = ()


class Writer(Protocol):
    """Writes one part."""

    def add(self, number: int, leaves: Sequence[Leaf]) -> Range:
        """Adds the sample with this number; returns the sample's place."""

    def close(self) -> None:
        """Ends the part; the file is then complete."""


class Reader(Protocol):
    """Reads one part, in one process."""

    def leaves(self, number: int, place: Range, structure: Any) -> list[memoryview]:
        """The leaves of a sample, in writable memory."""

    def prefetch(self, places: Sequence[Range]) -> None:
        """Asks the kernel to read these places; returns at once."""

    def leave(self) -> None:
        """Drops the handle in a forked child."""


def library(name: str) -> Any:
    """The package behind a format.

    Raises:
        HostError: The package is not installed.
    """
    try:
        return import_module(LIBRARIES[name])
    except ImportError as error:
        raise HostError(
            f"The format {name} needs the package {LIBRARIES[name]}, which is not installed.",
            f"Install it: pip install {LIBRARIES[name]}",
        ) from error


def open_writer(format_name: str, path: Path) -> Writer:
    """A writer of a new part.

    Raises:
        HostError: The format's package is not installed.
    """
    writers: dict[str, Any] = {"npy": NpyWriter, "lmdb": LmdbWriter, "hdf5": Hdf5Writer, "webdataset": TarWriter}
    writer: Writer = writers[format_name](path)
    return writer


def open_reader(format_name: str, path: Path) -> Reader:
    """A reader of a finished part, for this process.

    Raises:
        HostError: The format's package is not installed.
        OSError: The part cannot be opened.
    """
    readers: dict[str, Any] = {"npy": RecordReader, "lmdb": LmdbReader, "hdf5": Hdf5Reader, "webdataset": TarReader}
    reader: Reader = readers[format_name](path)
    return reader


class NpyWriter:
    """Writes one array of bytes. The header of the `.npy` file has a fixed length, and is written last."""

    HEADER = 128

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._file.write(bytes(self.HEADER))
        self._position = self.HEADER

    def add(self, number: int, leaves: Sequence[Leaf]) -> Range:
        """Adds a sample."""
        record = to_record(leaves)
        padding = -self._position % 16
        self._file.write(bytes(padding) + record)
        place = Range((self._position + padding, len(record)))
        self._position += padding + len(record)
        return place

    def close(self) -> None:
        """Ends the part."""
        text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({self._position - self.HEADER},), }}"
        body = text.encode().ljust(self.HEADER - 11) + b"\n"
        self._file.seek(0)
        self._file.write(b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body)
        self._file.close()


class FileReader:
    """Reads ranges of one file by position: several readers share no offset."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            os.close(self._descriptor)

    def read(self, place: Range) -> memoryview:
        """The bytes of a range, in writable memory."""
        offset, length = place
        data = bytearray(length)
        view = memoryview(data)
        done = 0
        while done < length:
            count = os.preadv(self._descriptor, [view[done:]], offset + done)
            if not count:
                raise OSError(f"a packed part ends {length - done} bytes before its last sample")
            done += count
        return view

    def prefetch(self, places: Sequence[Range]) -> None:
        """Asks the kernel for these ranges."""
        for offset, length in places:
            os.posix_fadvise(self._descriptor, offset, length, os.POSIX_FADV_WILLNEED)

    def leave(self) -> None:
        """Does nothing: a descriptor read by position may be shared by processes."""


class RecordReader(FileReader):
    """Reads records from an array of bytes."""

    def leaves(self, number: int, place: Range, structure: Any) -> list[memoryview]:
        """The leaves of a sample."""
        return split_record(self.read(place), num_leaves(structure))


class TarWriter:
    """Writes a shard of WebDataset: members `000000017.0.jpg` and `000000017.1.json` make sample 17."""

    def __init__(self, path: Path) -> None:
        self._tar = tarfile.open(path, "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115 - closed by close()

    def add(self, number: int, leaves: Sequence[Leaf]) -> Range:
        """Adds a sample."""
        began = self._tar.offset
        for leaf in leaves:
            member = tarfile.TarInfo(f"{number:0{KEY_DIGITS}d}.{leaf.path.replace('/', '_')[:60]}.{leaf.suffix}")
            member.size = len(leaf.data)
            self._tar.addfile(member, io.BytesIO(leaf.data))
        return Range((began, self._tar.offset - began))

    def close(self) -> None:
        """Ends the part."""
        self._tar.close()


class TarReader(FileReader):
    """Reads the members of a sample from a tar file, by the sample's place."""

    def leaves(self, number: int, place: Range, structure: Any) -> list[memoryview]:
        """The leaves of a sample."""
        data, position, found = self.read(place), 0, []
        while position < len(data):
            size = int(bytes(data[position + 124 : position + 135]), 8)
            position += TAR_BLOCK
            found.append(data[position : position + size])
            position += size + -size % TAR_BLOCK
        return found


class LmdbWriter:
    """Writes one LMDB file with records."""

    MAP_STEP = 1 << 26
    """Bytes by which a full map grows, at least."""

    def __init__(self, path: Path) -> None:
        self._lmdb = library("lmdb")
        self._path, self._size = path, self.MAP_STEP
        self._environment = self._lmdb.open(
            str(path), subdir=False, map_size=self._size, lock=False, readahead=False, meminit=False, sync=False
        )
        self._pending: list[tuple[bytes, bytes]] = []
        self._pending_bytes = 0

    def add(self, number: int, leaves: Sequence[Leaf]) -> Range:
        """Adds a sample."""
        record = to_record(leaves)
        self._pending.append((_key(number), record))
        self._pending_bytes += len(record)
        if self._pending_bytes > self.MAP_STEP // 4:
            self._flush()
        return Range((0, len(record)))

    def _flush(self) -> None:
        while True:
            try:
                with self._environment.begin(write=True) as transaction:
                    for key, record in self._pending:
                        transaction.put(key, record, append=True)
                break
            except self._lmdb.MapFullError:
                self._size = 2 * self._size + 2 * self._pending_bytes
                self._environment.set_mapsize(self._size)
        self._pending, self._pending_bytes = [], 0

    def close(self) -> None:
        """Ends the part."""
        self._flush()
        used = (self._environment.info()["last_pgno"] + 1) * self._environment.stat()["psize"]
        self._environment.sync(True)
        self._environment.close()
        os.truncate(self._path, used)


class LmdbReader:
    """Reads records from one LMDB file; readers of the file share a database, since LMDB opens a file once."""

    _opened: ClassVar[dict[tuple[str, int, int], tuple[int, Any]]] = {}
    """Process and database by path, inode and time of the file."""

    def __init__(self, path: Path) -> None:
        status = path.stat()
        key = str(path), status.st_ino, status.st_mtime_ns
        pid, self._environment = self._opened.get(key, (0, None))
        if pid != os.getpid():
            self.leave()
            self._environment = library("lmdb").open(
                str(path), subdir=False, readonly=True, lock=False, readahead=False, meminit=False
            )
            self._opened[key] = os.getpid(), self._environment
        self._transaction = self._environment.begin(buffers=True)

    def leaves(self, number: int, place: Range, structure: Any) -> list[memoryview]:
        """The leaves of a sample."""
        value = self._transaction.get(_key(number))
        if value is None:
            raise OSError(f"a packed part lacks sample {number}")
        _read_at_once(value)
        return split_record(memoryview(bytearray(value)), num_leaves(structure))

    def prefetch(self, places: Sequence[Range]) -> None:
        """Does nothing: the places within the database are unknown."""

    def leave(self) -> None:
        """Closes a parent's database in a child; without locks and writes the parent's database stays intact."""
        if self._environment is not None:
            self._environment.close()


def _read_at_once(mapped: memoryview) -> None:
    """Asks the kernel for all pages of a range of mapped memory; otherwise a cold disk is read page by page."""
    address = np.frombuffer(mapped, np.uint8).__array_interface__["data"][0]
    begin = address - address % mmap.PAGESIZE
    if address + len(mapped) - begin > mmap.PAGESIZE and _MADVISE is not None:
        _MADVISE(begin, address + len(mapped) - begin, mmap.MADV_WILLNEED)


def _madvise() -> Any:
    """The system's call of the same name; None on a system without it."""
    call: Any = getattr(ctypes.CDLL(None), "madvise", None) if hasattr(mmap, "MADV_WILLNEED") else None
    if call is not None:
        call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return call


_MADVISE = _madvise()


def _key(number: int) -> bytes:
    return number.to_bytes(8, "big")


class Hdf5Writer:
    """Writes one HDF5 file.

    Samples of one size are rows, and each row is a chunk. Samples of several sizes are ranges of one array of bytes:
    HDF5's rows of any length take ten times as long to read.
    """

    def __init__(self, path: Path) -> None:
        self._h5py, self._path = library("hdf5"), path
        self._records: list[bytes] = []
        self._position = 0

    def add(self, number: int, leaves: Sequence[Leaf]) -> Range:
        """Adds a sample."""
        self._records.append(to_record(leaves))
        place = Range((self._position, len(self._records[-1])))
        self._position += place[1]
        return place

    def close(self) -> None:
        """Ends the part."""
        lengths = {len(record) for record in self._records}
        data = np.frombuffer(b"".join(self._records), np.uint8)
        with self._h5py.File(self._path, "w") as file:
            if len(lengths) == 1:
                [length] = lengths
                file.create_dataset("samples", data=data.reshape(-1, length), chunks=(1, length))
            else:
                file.create_dataset("samples", data=data)


class Hdf5Reader:
    """Reads records from one HDF5 file."""

    def __init__(self, path: Path) -> None:
        self._file = library("hdf5").File(path, "r", rdcc_nbytes=0, locking=False)
        self._samples = self._file["samples"]
        self._has_rows = self._samples.ndim == 2

    def leaves(self, number: int, place: Range, structure: Any) -> list[memoryview]:
        """The leaves of a sample."""
        offset, length = place
        record = self._samples[offset // length if self._has_rows else slice(offset, offset + length)]
        return split_record(memoryview(record), num_leaves(structure))

    def prefetch(self, places: Sequence[Range]) -> None:
        """Does nothing: HDF5 reads by itself."""

    def leave(self) -> None:
        """Closes a parent's file in a child; otherwise HDF5 would take the new file for the inherited file."""
        self._file.close()
