"""Logs the batches that a loader's workers have built, in memory shared with the training process."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from autotune.measure.build_times import BuildTimes

_NUM_BUILT, _BUSY_S, _BUSY_SQUARED_S2, _BEGAN = range(4)
_NUM_FIELDS = 4
_IDLE = 0.0
"""Stands for an idle worker, in place of the time at which a worker began a batch."""


class Built(NamedTuple):
    """The batches built by a loader's workers up to some moment."""

    num: float
    """Number of batches; a batch in the making counts by its age as a share of the mean building time."""
    times: BuildTimes
    """Building times of the finished batches."""


class BuildLog:
    """Counts and times the batches of each worker since the gate was opened; can be pickled for a worker.

    No lock is needed: every worker writes only its own fields.

    Args:
        context: The loader's multiprocessing context; None for the default context.
        num_workers: Number of the loader's workers.
        prefetch_factor: Batches that each worker prefetches.
    """

    def __init__(self, context: Any, num_workers: int, prefetch_factor: int) -> None:
        self._num_workers, self._prefetch_factor = num_workers, prefetch_factor
        self._fields: Any = (context or multiprocessing).RawArray("d", num_workers * _NUM_FIELDS)

    def build(self, worker_id: int, fetch: Callable[..., Any], *arguments: Any) -> Any:
        """Builds a batch in the worker, and notes the time."""
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
        """The batches built by all workers so far."""
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
