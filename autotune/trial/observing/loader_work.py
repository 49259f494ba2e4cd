"""Times the building of batches, in the loader's workers or in the training process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from typing import Any

from autotune.model.observation import LoadingTimes
from autotune.trial.observing.build_parts import PLAIN_FIELDS, SPLIT_FIELDS, TimedBuilding
from autotune.trial.observing.file_times import DECODERS

FIELDS = (*SPLIT_FIELDS, *PLAIN_FIELDS)
_AT = {name: index for index, name in enumerate(FIELDS)}


class LoadingLog:
    """Totals of every building process, in shared memory; can be pickled for a worker.

    No lock is needed: each process writes only its own fields. Timing begins with `switch`.

    Args:
        context: The loader's multiprocessing context; None for the default context.
        num_processes: Number of building processes: the workers, or 1 for the training process.
    """

    def __init__(self, context: Any, num_processes: int) -> None:
        self._fields: Any = (context or multiprocessing).RawArray("d", 1 + num_processes * len(FIELDS))

    @property
    def is_on(self) -> bool:
        """Whether batches are timed now."""
        return bool(self._fields[0])

    def switch(self, *, is_on: bool) -> None:
        """Begins or ends the timing, in all processes from their next batch on."""
        self._fields[0] = float(is_on)

    def add(self, process: int, figures: Mapping[str, float]) -> None:
        """Adds to the totals of one process."""
        base = 1 + process * len(FIELDS)
        for name, figure in figures.items():
            self._fields[base + _AT[name]] += figure

    def total(self, name: str) -> float:
        """Sum of one figure over all processes."""
        return float(sum(self._fields[1 + _AT[name] :: len(FIELDS)]))

    def times(self) -> LoadingTimes | None:
        """Totals of all processes over the split batches; None when no batch was built.

        The total time is the time of as many samples in the batches without file timing, so that the cost of timing
        each file stays out of the total.
        """
        fields = self._fields[1:]
        total = {name: self.total(name) for name in FIELDS}
        if total["batches"] < 1:
            return None
        busy_s, cpu_s = total["busy"], total["cpu"]
        if total["plain_samples"]:
            factor = total["samples"] / total["plain_samples"]
            busy_s, cpu_s = factor * total["plain_busy"], factor * total["plain_cpu"]
        known_s = max(total["open"] + total["read"] + total["decode"], 1e-9)
        decoder = max(DECODERS, key=lambda name: total[name])
        return LoadingTimes(
            num_batches=int(total["batches"]),
            num_samples=int(total["samples"]),
            busy_s=max(busy_s, known_s),
            cpu_s=cpu_s,
            open_s=total["open"],
            read_s=total["read"],
            decode_s=total["decode"],
            num_files=int(total["files"]),
            read_bytes=int(total["bytes"]),
            decoder=decoder if total[decoder] > 0 else "",
            num_building=sum(busy > 0 for busy in fields[_AT["batches"] :: len(FIELDS)]),
        )


class TimedWorkerInit:
    """A `worker_init_fn` that attaches the timing, then runs the loader's earlier function; can be pickled."""

    def __init__(self, log: LoadingLog, before: Callable[[int], None] | None) -> None:
        self.log, self.before = log, before

    def __call__(self, worker_id: int) -> None:
        """Attaches the timing in this worker, then runs the earlier function."""
        TimedBuilding(self.log, worker_id).attach()
        if self.before is not None:
            self.before(worker_id)


class LoadingWatch:
    """Times the building of the training loader's batches, in workers or in the training process."""

    def __init__(self) -> None:
        self._log: LoadingLog | None = None
        self._num_workers = 0
        self._in_process: TimedBuilding | None = None

    def iteration_ends(self, loader: Any) -> None:
        """Removes the timing from the loader, before other code reads the `worker_init_fn`."""
        if isinstance(loader.worker_init_fn, TimedWorkerInit):
            loader.worker_init_fn = loader.worker_init_fn.before

    def iteration_begins(self, loader: Any) -> None:
        """Adds the timing to the workers about to start; running persistent workers have the timing already."""
        if self._log is None or self._num_workers != loader.num_workers:
            self._num_workers = loader.num_workers
            self._log = LoadingLog(loader.multiprocessing_context, max(1, loader.num_workers))
        if loader.num_workers:
            loader.worker_init_fn = TimedWorkerInit(self._log, loader.worker_init_fn)

    def begin(self) -> None:
        """Begins to time."""
        if self._log is None:
            return
        if not self._num_workers:
            self._in_process = TimedBuilding(self._log, 0)
            self._in_process.attach()
        self._log.switch(is_on=True)

    @property
    def has_enough(self) -> bool:
        """Whether enough batches were timed: half as many split batches as workers, and one unsplit batch.

        A batch counts if a worker both began and finished the batch under the timing. True without workers.
        """
        if self._log is None or not self._num_workers:
            return True
        return self._log.total("batches") >= max(1, self._num_workers // 2) and self._log.total("plain_samples") > 0

    def end(self) -> LoadingTimes | None:
        """Ends the timing; returns the totals, None when no batch was built."""
        if self._log is None:
            return None
        self._log.switch(is_on=False)
        if self._in_process is not None:
            self._in_process.detach()
        return self._log.times()

    def build_s_by_size(self, factor: int) -> tuple[float, float] | None:
        """Seconds of building a batch, and a batch `factor` times as large; None when workers build the batches."""
        return self._in_process.build_s_by_size(factor) if self._in_process is not None else None
