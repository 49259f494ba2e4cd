"""Threads that libraries start outside of Python, and that prepare for forks by themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ForkAware:
    """A kind of thread that forbids no fork."""

    name: str
    """As the operating system has it."""
    library: str
    """How the name of the file begins that starts the thread; the file must be mapped."""


FORK_AWARE: tuple[ForkAware, ...] = (
    # pyarrow, and whatever imports pyarrow: pandas, datasets, scikit-learn, Hugging Face's Trainer. Arrow builds its
    # jemalloc with `background_thread:true`. jemalloc takes all its locks before a fork, and its
    # `background_thread_postfork_child` (src/background_thread.c) marks the thread as stopped and switches it off: in
    # the child, who allocates also gives pages back. Arrow allocates by mimalloc unless told otherwise. Tried with
    # pyarrow 26: 8 children of one process each sort, group and filter tables in three threads at once with jemalloc,
    # mimalloc and malloc, write Parquet, map data sets with processes of their own, and load batches by workers. The
    # processor time of allocations by jemalloc is the same in a child as in the parent.
    ForkAware(name="jemalloc_bg_thd", library="libarrow.so"),
)
"""Left out although its children worked: polars (`polars-ooc-clea`), whose manual forbids forks."""


def is_fork_aware(name: str, mapped_files: Iterable[str]) -> bool:
    """Whether a fork may leave a thread behind, because the library that has started it prepares for forks.

    Args:
        name: Of the thread, as the operating system has it.
        mapped_files: Names of the files that this process has mapped, without their folders.
    """
    libraries = [each.library for each in FORK_AWARE if each.name == name]
    return any(file.startswith(library) for library in libraries for file in mapped_files)
