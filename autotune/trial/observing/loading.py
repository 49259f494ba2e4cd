"""What building the batches takes: in the loader's workers, or in the process that trains where it has none."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autotune.model.observation import LoadingTimes
from autotune.trial import torch_names
from autotune.trial.observing.file_times import DECODERS, FileTimes, Part, TimingCost, timing_cost
from autotune.trial.patching import wrap

_FIELDS = ("batches", "samples", "busy", "cpu", "open", "read", "decode", "files", "bytes", *DECODERS)
_AT = {name: index for index, name in enumerate(_FIELDS)}


class LoadingLog:
    """Totals of every process that builds, in memory that they share; can be pickled for a worker.

    Each process writes fields of its own, so nothing is locked. Nothing is timed until it is switched on.

    Args:
        context: Of multiprocessing, as the loader's; None for the default one.
        num_processes: That build: the workers, or 1 for the process that trains.
    """

    def __init__(self, context: Any, num_processes: int) -> None:
        self._fields: Any = (context or multiprocessing).RawArray("d", 1 + num_processes * len(_FIELDS))

    @property
    def is_on(self) -> bool:
        """Whether batches are timed now."""
        return bool(self._fields[0])

    def switch(self, *, is_on: bool) -> None:
        """Begins or ends the timing, in all processes from their next batch on."""
        self._fields[0] = float(is_on)

    def add(self, process: int, figures: dict[str, float]) -> None:
        """Adds to the totals of one process."""
        base = 1 + process * len(_FIELDS)
        for name, figure in figures.items():
            self._fields[base + _AT[name]] += figure

    def times(self) -> LoadingTimes | None:
        """All processes together; None where no batch was built."""
        fields = self._fields[1:]
        total = {name: sum(fields[index :: len(_FIELDS)]) for name, index in _AT.items()}
        if total["batches"] < 1:
            return None
        # What timing itself takes is no part of the building.
        cost = timing_cost() if total["files"] else TimingCost(0.0, 0.0)
        timing_s = total["files"] * (cost.in_parts_s + cost.in_rest_s)
        open_s = max(0.0, total["open"] - total["files"] * cost.in_parts_s)
        known_s = max(open_s + total["read"] + total["decode"], 1e-9)
        decoder = max(DECODERS, key=lambda name: total[name])
        return LoadingTimes(
            num_batches=int(total["batches"]),
            num_samples=int(total["samples"]),
            busy_s=max(total["busy"] - timing_s, known_s),
            cpu_s=max(0.0, total["cpu"] - timing_s),
            open_s=open_s,
            read_s=total["read"],
            decode_s=total["decode"],
            num_files=int(total["files"]),
            read_bytes=int(total["bytes"]),
            decoder=decoder if total[decoder] > 0 else "",
        )


class TimedBuilding:
    """The building of batches in this process, one place of the log.

    Args:
        log: Where it is noted.
        process: Which one this is.
    """

    def __init__(self, log: LoadingLog, process: int) -> None:
        self._log, self._process = log, process
        self._times: FileTimes | None = None
        self._is_building = False
        self._restore: list[Callable[[], None]] = []

    def attach(self) -> None:
        """Wraps what builds a batch out of its samples."""
        self._restore = [wrap(cls, "fetch", self._timed) for cls in torch_names.fetchers()]

    def detach(self) -> None:
        """Puts everything back."""
        while self._restore:
            self._restore.pop()()
        if self._times is not None:
            self._times.detach()
            self._times = None

    def _timed(self, fetch: Callable[..., Any]) -> Callable[..., Any]:
        def timed(fetcher: Any, index: Any) -> Any:
            if self._is_building or not self._log.is_on:
                return fetch(fetcher, index)
            self._is_building = True
            try:
                return self._build(fetch, fetcher, index)
            finally:
                self._is_building = False

        return timed

    def _build(self, fetch: Callable[..., Any], fetcher: Any, index: Any) -> Any:
        if self._times is None:
            self._times = FileTimes()
            self._times.attach()
        times = self._times
        before = _figures(times)
        began, cpu_began = time.perf_counter(), _processor_s()
        times.begin()
        try:
            batch = fetch(fetcher, index)
        finally:
            times.end()
        figures = {name: figure - before[name] for name, figure in _figures(times).items()}
        figures.update(
            batches=1,
            samples=len(index) if isinstance(index, (list, tuple)) else 1,
            busy=time.perf_counter() - began,
            cpu=_processor_s() - cpu_began,
        )
        self._log.add(self._process, figures)
        return batch


def _figures(times: FileTimes) -> dict[str, float]:
    seconds = times.watch.seconds
    return {
        "open": seconds[Part.OPEN],
        "read": seconds[Part.READ],
        "decode": seconds[Part.DECODE],
        "files": times.num_files,
        "bytes": times.read_bytes,
        **times.decode_s_by,
    }


def _processor_s() -> float:
    """Time for which this thread ran, or could have if others had left it a processor: more workers bring no more."""
    try:
        ran, waited, _ = Path("/proc/thread-self/schedstat").read_text().split()
    except (OSError, ValueError):
        return time.thread_time()
    return (int(ran) + int(waited)) / 1e9


class TimedWorkerInit:
    """A `worker_init_fn` that lets its worker be timed, then runs the one before it; can be pickled."""

    def __init__(self, log: LoadingLog, before: Callable[[int], None] | None) -> None:
        self.log, self.before = log, before

    def __call__(self, worker_id: int) -> None:
        """Wraps the building of this process, then initialises as before."""
        TimedBuilding(self.log, worker_id).attach()
        if self.before is not None:
            self.before(worker_id)


class LoadingWatch:
    """Times the building of the training loader's batches, wherever it happens."""

    def __init__(self) -> None:
        self._log: LoadingLog | None = None
        self._num_workers = 0
        self._in_process: TimedBuilding | None = None

    def iteration_ends(self, loader: Any) -> None:
        """Takes the watch off the loader, before others look at its `worker_init_fn`."""
        if isinstance(loader.worker_init_fn, TimedWorkerInit):
            loader.worker_init_fn = loader.worker_init_fn.before

    def iteration_begins(self, loader: Any) -> None:
        """Lets the workers that an iteration is about to start be timed; persistent ones that go on are already."""
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

    def end(self) -> LoadingTimes | None:
        """Ends it; what was seen, None where no batch was built."""
        if self._log is None:
            return None
        self._log.switch(is_on=False)
        if self._in_process is not None:
            self._in_process.detach()
        return self._log.times()
