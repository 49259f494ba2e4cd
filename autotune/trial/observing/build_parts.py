"""Times the building of batches in one process: splits every second batch into parts, and times larger batches."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from autotune.trial.observing.file_times import DECODERS, FileTimes, Part
from autotune.trial.torch import torch_names
from autotune.trial.torch.patching import wrap

SPLIT_FIELDS = ("batches", "samples", "busy", "cpu", "open", "read", "decode", "files", "bytes", *DECODERS)
PLAIN_FIELDS = ("plain_samples", "plain_busy", "plain_cpu")
"""Figures of every other batch, built without timing of single files."""
MAX_FACTOR = 8
LARGER_LIMIT_S = 0.2
"""Longest building of the last `factor` batches in seconds, since the building is repeated several times."""
LEAST_TURNS, LEAST_S = 3, 0.1


class BuildingLog(Protocol):
    """A log of building times, shared by all processes."""

    @property
    def is_on(self) -> bool:
        """Whether batches are timed now."""
        ...

    def add(self, process: int, figures: Mapping[str, float]) -> None:
        """Adds to the totals of one process."""
        ...


class TimedBuilding:
    """Times the building of batches in this process.

    Args:
        log: The log of building times.
        process: Number of this process in the log.
    """

    def __init__(self, log: BuildingLog, process: int) -> None:
        self._log, self._process = log, process
        self._is_building = False
        self._is_split = True
        """Whether the next batch is split into parts; batches take turns."""
        self._fetcher: Any = None
        self._indices: deque[list[Any]] = deque(maxlen=MAX_FACTOR)
        """Sample indices of the last batches."""
        self._restore: list[Callable[[], None]] = []

    def attach(self) -> None:
        """Wraps the functions that build a batch from samples."""
        self._restore = [wrap(cls, "fetch", self._timed) for cls in torch_names.fetchers()]

    def detach(self) -> None:
        """Restores the wrapped functions."""
        while self._restore:
            self._restore.pop()()

    def build_s_by_size(self, factor: int) -> tuple[float, float] | None:
        """Seconds of building a batch like the last batches, and a batch `factor` times as large, in turns.

        None when building takes too long or cannot be repeated, as with a stream. To be called after `detach`.
        """
        indices = list(self._indices)[-factor:]
        if len(indices) < factor or not torch_names.is_map_fetcher(self._fetcher):
            return None
        together = [index for each in indices for index in each]
        own_s = larger_s = 0.0
        num_turns = 0
        try:
            own_once_s = self._seconds_of(indices)  # not counted: the files may be in no cache yet
            if own_once_s > LARGER_LIMIT_S:
                return None
            while num_turns < LEAST_TURNS or own_s + larger_s < LEAST_S:
                larger_s += self._seconds_of([together])
                own_s += self._seconds_of(indices)
                num_turns += 1
        except Exception:  # the script's dataset may refuse a request that its loader would never make
            return None
        return own_s / num_turns / factor, larger_s / num_turns

    def _seconds_of(self, batches: list[list[Any]]) -> float:
        began = time.perf_counter()
        for indices in batches:
            self._fetcher.fetch(indices)
        return max(time.perf_counter() - began, 1e-9)

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
        self._fetcher = fetcher
        if isinstance(index, list):
            self._indices.append(index)
        num_samples = len(index) if isinstance(index, (list, tuple)) else 1
        is_split, self._is_split = self._is_split, not self._is_split
        times = FileTimes() if is_split else None
        if times is not None:
            times.attach()
        cpu_began, began = processor_s(), time.perf_counter()
        try:
            if times is not None:
                times.begin()
            batch = fetch(fetcher, index)
        finally:
            if times is not None:
                times.end()
                times.detach()
        busy_s, cpu_s = time.perf_counter() - began, processor_s() - cpu_began
        if times is None:
            figures = {"plain_samples": num_samples, "plain_busy": busy_s, "plain_cpu": cpu_s}
        else:
            figures = {"batches": 1, "samples": num_samples, "busy": busy_s, "cpu": cpu_s, **_parts(times)}
        self._log.add(self._process, figures)
        return batch


def _parts(times: FileTimes) -> dict[str, float]:
    seconds = times.watch.seconds
    return {
        "open": seconds[Part.OPEN],
        "read": seconds[Part.READ],
        "decode": seconds[Part.DECODE],
        "files": times.num_files,
        "bytes": times.read_bytes,
        **times.decode_s_by,
    }


def processor_s() -> float:
    """Seconds that this thread ran or waited for a processor: work that more workers would not speed up."""
    try:
        # The kernel updates the first figure, the time of running, at ticks alone: too coarse for a small batch.
        _, waited, _ = Path("/proc/thread-self/schedstat").read_text().split()
    except (OSError, ValueError):
        return time.thread_time()
    return time.thread_time() + int(waited) / 1e9
