"""What the workers of a loader have built so far, in memory that they share with the process that trains."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

_NUM_BUILT, _BUSY_S, _BEGAN = range(3)
_NUM_FIELDS = 3
_IDLE = 0.0
"""In place of the time at which a worker began its batch."""


class BuildLog:
    """Batches that each worker built since the gate was opened; can be pickled for a worker.

    Every worker writes its own fields alone, so nothing is locked.

    Args:
        context: Of multiprocessing, as the loader's; None for the default one.
        num_workers: Of the loader.
    """

    def __init__(self, context: Any, num_workers: int) -> None:
        self._num_workers = num_workers
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
        fields[at + _BUSY_S] += time.monotonic() - began
        fields[at + _BEGAN] = _IDLE
        fields[at + _NUM_BUILT] += 1.0
        return batch

    def num_built(self) -> float:
        """Batches built until now, with the share that is done of those being built, judged by the mean time so far."""
        now = time.monotonic()
        fields = self._fields[:]
        num_built = sum(fields[_NUM_BUILT::_NUM_FIELDS])
        if not num_built:
            return 0.0
        mean_s = sum(fields[_BUSY_S::_NUM_FIELDS]) / num_built
        being_built = [now - began for began in fields[_BEGAN::_NUM_FIELDS] if began != _IDLE]
        return float(num_built + sum(min(1.0, max(0.0, spent_s) / max(mean_s, 1e-9)) for spent_s in being_built))
