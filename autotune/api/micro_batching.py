"""The loop over micro-batches, which steps what is left over when the loader ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from autotune.api.own_accumulation import Accumulation

Batch = TypeVar("Batch")


class _Loop:
    """One pass over a loader, with the accumulation that it feeds."""

    accumulation: Accumulation | None = None


_open_loops: list[_Loop] = []
"""Passes that have begun and not ended; the innermost is last."""


def note_fed(accumulation: Accumulation) -> None:
    """Tells the innermost pass that its batches go into this accumulation."""
    if _open_loops:
        _open_loops[-1].accumulation = accumulation


def micro_batches(loader: Iterable[Batch]) -> Iterator[Batch]:
    """The loader's batches; when they are all taken, micro-batches that do not fill a step are stepped.

    Such a last step is the mean over its true count of micro-batches. It is not taken when the loop is left early: then
    the next loop fills the step.
    """
    loop = _Loop()
    _open_loops.append(loop)
    try:
        yield from loader
    finally:
        _open_loops.remove(loop)
    if loop.accumulation is not None:
        loop.accumulation.flush()
