"""Traps of stored datasets, found by the probe, in words: the thing, the line, and the cure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TrapKind(StrEnum):
    """Kind of a trap."""

    LMDB_BEFORE_FORK = "lmdb_before_fork"
    HDF5_SHARED = "hdf5_shared"
    FILE_SHARED = "file_shared"
    FEW_SHARDS = "few_shards"
    SHUFFLE_TO_ONE = "shuffle_to_one"
    ARROW_INDICES = "arrow_indices"
    CUDA_IN_FORK = "cuda_in_fork"
    GROWING_OBJECTS = "growing_objects"


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageTrap:
    """One trap."""

    kind: TrapKind
    name: str
    """The attribute of the dataset, or the stream with the number of shards."""
    where: str
    """`file:line` that sets the attribute, or builds the loader."""

    @property
    def problem(self) -> str:
        """The trap without its cure, as a clause."""
        return f"{self.name} at {self.where} {_WORDS[self.kind][0]}"

    @property
    def may_falsify_samples(self) -> bool:
        """Whether several forked workers may read wrong samples without an error."""
        return self.kind in {TrapKind.HDF5_SHARED, TrapKind.FILE_SHARED}


_WORDS = {
    TrapKind.LMDB_BEFORE_FORK: (
        "opens LMDB before workers are forked, which may crash or hang them",
        "Open it at the first sample in each worker: lmdb.open(path, readonly=True, lock=False, readahead=False, "
        "meminit=False)",
    ),
    TrapKind.HDF5_SHARED: (
        "opens an HDF5 file before workers are forked, and a shared handle may give wrong data",
        "Open it at the first sample in each worker",
    ),
    TrapKind.FILE_SHARED: (
        "is open before workers are forked: all would move its one position, and samples would be lost or mixed",
        "Open it at the first sample in each worker",
    ),
    TrapKind.FEW_SHARDS: (
        "leaves some workers without data",
        "Write more shards than workers, or ask for fewer workers",
    ),
    TrapKind.SHUFFLE_TO_ONE: (
        "has one shard left after shuffle(), so that worker 0 alone gets data",
        "Pass max_buffer_input_shards=1 to shuffle(), or use another release of datasets than 5.0",
    ),
    TrapKind.ARROW_INDICES: (
        "reads its rows by an indices mapping, as left by shuffle() or select(), which is about ten times slower",
        "Call flatten_indices() once, or to_iterable_dataset()",
    ),
    TrapKind.CUDA_IN_FORK: (
        "holds a decoder or a tensor that does not survive the fork of a worker",
        'Make it in the worker, with multiprocessing_context="spawn" of the DataLoader',
    ),
    TrapKind.GROWING_OBJECTS: (
        "holds so many Python objects that every worker copies their pages as it counts references",
        "Keep them as one array of numpy or pyarrow, or as one text with offsets",
    ),
}


def trap_text(trap: StorageTrap) -> str:
    """The trap and its cure as two sentences."""
    return f"{trap.problem}. {_WORDS[trap.kind][1]}."
