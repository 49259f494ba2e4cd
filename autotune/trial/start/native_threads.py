"""Knows which native threads a fork may leave behind, because the starting library prepares for forks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ForkAware:
    """A kind of thread that does not forbid a fork."""

    name: str
    """The thread's name in the operating system."""
    library: str
    """Start of the file name of the library that starts the thread; the process must have mapped the file."""


FORK_AWARE: tuple[ForkAware, ...] = (
    # pyarrow, and everything that imports pyarrow: pandas, datasets, scikit-learn, Hugging Face's Trainer. Arrow
    # builds jemalloc with `background_thread:true`. jemalloc takes all locks before a fork. Afterwards
    # `background_thread_postfork_child` (src/background_thread.c) marks the thread as stopped and switches it off: in
    # the child, allocating threads also give pages back. Arrow allocates by mimalloc unless told otherwise. Tried with
    # pyarrow 26: 8 children of one process each sort, group and filter tables in three threads at once with jemalloc,
    # mimalloc and malloc, write Parquet, map data sets with several processes, and load batches by workers. The
    # processor time of allocations by jemalloc is the same in a child as in the parent.
    ForkAware(name="jemalloc_bg_thd", library="libarrow.so"),
)
"""polars (`polars-ooc-clea`) is left out although forked children worked: the manual of polars forbids forks."""


def is_fork_aware(name: str, mapped_files: Iterable[str]) -> bool:
    """Whether a fork may leave the thread behind, because the thread's library prepares for forks.

    Args:
        name: Name of the thread in the operating system.
        mapped_files: Names of the files mapped by this process, without folders.
    """
    libraries = [each.library for each in FORK_AWARE if each.name == name]
    return any(file.startswith(library) for library in libraries for file in mapped_files)
