"""What the workers of a loader have built so far, in memory that they share with the process that trains."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from autotune.measure.build_times import BuildTimes

_NUM_BUILT, _BUSY_S, _BUSY_SQUARED_S2, _BEGAN = range(4)
_NUM_FIELDS = 4
_IDLE = 0.0
"""In place of the time at which a worker began its batch."""


class Built(NamedTuple):
    """What workers have built until some moment."""

    num: float
    """Batches, with the share that is done of those being built, judged by the mean time so far."""
    times: BuildTimes
    """Of those that are finished."""


class BuildLog:
    """Batches that each worker built since the gate was opened; can be pickled for a worker.

    Every worker writes its own fields alone, so nothing is locked.

    Args:
        context: Of multiprocessing, as the loader's; None for the default one.
        num_workers: Of the loader.
        prefetch_factor: Of the loader.
    """

    def __init__(self, context: Any, num_workers: int, prefetch_factor: int) -> None:
        self._num_workers, self._prefetch_factor = num_workers, prefetch_factor
        self._fields: Any = (context or multiprocessing).RawArray("d", num_workers * _NUM_FIELDS)

    def build(self, worker_id: int, fetch: Callable[..., Any], *arguments: Any) -> Any:
        """Builds a batch in its worker, and notes it."""
        fields, at = self._fields, worker_id * _NUM_FIELDS
        began = fields[at + _BEGAN] = time.monotonic()
        try:
            batch = fetch(*arguments)
        except BaseException:
            fields[at + _BEGAN] = _IDLE
            raise
        took_s = time.monotonic() - began
        fields[at + _BUSY_S] += took_s
        fields[at + _BUSY_SQUARED_S2] += took_s * took_s
        fields[at + _BEGAN] = _IDLE
        fields[at + _NUM_BUILT] += 1.0
        return batch

    def built(self) -> Built:
        """What all workers have built until now."""
        now = time.monotonic()
        fields = self._fields[:]
        times = BuildTimes(
            num_workers=self._num_workers,
            prefetch_factor=self._prefetch_factor,
            num_finished=int(sum(fields[_NUM_BUILT::_NUM_FIELDS])),
            total_s=sum(fields[_BUSY_S::_NUM_FIELDS]),
            total_squared_s2=sum(fields[_BUSY_SQUARED_S2::_NUM_FIELDS]),
        )
        if not times.num_finished:
            return Built(0.0, times)
        being_built = [now - began for began in fields[_BEGAN::_NUM_FIELDS] if began != _IDLE]
        shares = [min(1.0, max(0.0, spent_s) / max(times.mean_s, 1e-9)) for spent_s in being_built]
        return Built(times.num_finished + sum(shares), times)
