"""The loop over micro-batches, with a last step of the micro-batches left at the loader's end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from autotune.api.own_accumulation import Accumulation

Batch = TypeVar("Batch")


class _Loop:
    """One pass over a loader, with the accumulation fed by the pass."""

    accumulation: Accumulation | None = None


_open_loops: list[_Loop] = []
"""Passes begun and not ended; the innermost is last."""


def note_fed(accumulation: Accumulation) -> None:
    """Tells the innermost pass the accumulation of the pass's batches."""
    if _open_loops:
        _open_loops[-1].accumulation = accumulation


def micro_batches(loader: Iterable[Batch]) -> Iterator[Batch]:
    """The loader's batches; after the last batch, an incomplete accumulation is stepped.

    The last step is the mean over the true count of micro-batches. After a loop left early the next loop goes on with
    the accumulation.
    """
    loop = _Loop()
    _open_loops.append(loop)
    try:
        yield from loader
    finally:
        _open_loops.remove(loop)
    if loop.accumulation is not None:
        loop.accumulation.flush()
