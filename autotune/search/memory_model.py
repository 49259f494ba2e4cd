"""Peak memory of settings that were not tried, from those that were: lines in the micro-batch, and order. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from autotune.search.history import FinishedTrial, History
from autotune.settings import Precision, Settings
from autotune.space.space import KNOB_PREFIX, SearchSpace
from autotune.units import format_bytes

PREDICTION_MARGIN = 1.03
"""A prediction rules out above this share of the cap: two points give the line to a few percent."""

UNKNOWN_WORKER_SHARE = 0.5
"""Memory of a worker before the first was seen, as a share of the training process: a forked worker shares most of its
pages, a spawned one imports the script again but holds no model."""

_NEEDS_MORE = frozenset({"batch_size", "num_workers", "prefetch_factor", "cudnn_benchmark", "stream_prefetch"})
"""Settings of which a larger value, or having them on, never needs less memory."""

_EITHER_WAY = frozenset({"expandable_segments"})
"""Settings that may change the peak either way, as knobs may. Those in neither set change next to nothing of it."""

_HOST_ONLY = frozenset({"num_workers", "prefetch_factor"})
"""Settings that cost the host's memory alone."""


class MemoryModel:
    """What the finished trials say about the peak memory of any settings.

    On an accelerator the peak is a line in the micro-batch for each (width of the precision, compile), and the loader's
    workers are not in it. On a CPU every worker adds to it, and so do the batches in the queues, whose size is known.

    Args:
        history: Finished trials.
        space: Where they come from.
    """

    def __init__(self, history: History, space: SearchSpace) -> None:
        self._space = space
        self._measured = [trial for trial in history.trials if trial.outcome.is_complete and trial.peak_memory_bytes]
        self._failed = [trial for trial in history.trials if trial.outcome.is_infeasible]

    def predicted_peak_bytes(self, settings: Settings) -> float | None:
        """The peak that the trials determine for these settings; None while they do not.

        One trial of a (precision, compile) is a point, not a line: it determines other loader settings at its own
        micro-batch, and nothing at another one.
        """
        return self._from_line(self._lines, settings, is_shared=False)

    def is_determined(self, settings: Settings) -> bool:
        """Whether the trials give more than a bound for these settings."""
        return (
            self.predicted_peak_bytes(settings) is not None
            or self._from_line(self._lines_from_one_point, settings, is_shared=True) is not None
        )

    def ruled_out(self, settings: Settings, cap_bytes: int) -> str | None:
        """Why these settings would need more than the cap, as one sentence; None while nothing says so."""
        for trial in self._failed:
            if self._needs_at_least(settings, trial.settings):
                return f"Trial {trial.number} needed more than the cap with the same or smaller settings."
        predicted = self.predicted_peak_bytes(settings)
        if predicted is not None and predicted > PREDICTION_MARGIN * cap_bytes:
            return f"{format_bytes(predicted)} predicted, the cap is {format_bytes(cap_bytes)}."
        return None

    def unlikely(self, settings: Settings, cap_bytes: int) -> str | None:
        """Why these settings would rather not stay under the cap, by their likely peak; None while they may."""
        likely = self.likely_peak_bytes(settings)
        if likely is None or likely <= cap_bytes:
            return None
        return f"Up to {format_bytes(likely)} expected, the cap is {format_bytes(cap_bytes)}."

    def likely_peak_bytes(self, settings: Settings) -> float | None:
        """The prediction; where there is none, a guess that is rather too high than too low.

        First the lines are taken to start at the same point, since weights and optimizer are the same in every
        precision. Failing that, the peak of a trial grows in proportion to the micro-batch, and a worker is taken to be
        large until one was seen. None where nothing of the same (precision, compile) was measured.
        """
        predicted = self.predicted_peak_bytes(settings)
        if predicted is None:
            predicted = self._from_line(self._lines_from_one_point, settings, is_shared=True)
        if predicted is not None:
            return predicted
        same = [trial for trial in self._measured if _kind(trial.settings) == _kind(settings)]
        return min((self._bound(settings, trial) for trial in same), default=None)

    def _bound(self, settings: Settings, trial: FinishedTrial) -> float:
        peak = float(trial.peak_memory_bytes or 0)
        bound = peak * max(1.0, _micro_batch(settings) / _micro_batch(trial.settings))
        if self._space.device_is_cpu:
            more_workers = max(0, settings.num_workers - max(1, trial.settings.num_workers))
            bound += more_workers * UNKNOWN_WORKER_SHARE * peak / (1 + trial.settings.num_workers)
            bound += max(0.0, self._queue_bytes(settings) - self._queue_bytes(trial.settings))
        return bound

    @cached_property
    def _lines(self) -> _Regression:
        return self._fit(is_shared=False)

    @cached_property
    def _lines_from_one_point(self) -> _Regression:
        return self._fit(is_shared=True)

    def _fit(self, *, is_shared: bool) -> _Regression:
        trials = self._measured + ([trial for trial in self._failed if trial.peak_memory_bytes] if is_shared else [])
        rows = [self._features(trial.settings, is_shared=is_shared) for trial in trials]
        peaks = [float(trial.peak_memory_bytes or 0) - self._queue_bytes(trial.settings) for trial in trials]
        return _Regression(rows, peaks)

    def _from_line(self, lines: _Regression, settings: Settings, *, is_shared: bool) -> float | None:
        value = lines.predict(self._features(settings, is_shared=is_shared))
        return None if value is None else value + self._queue_bytes(settings)

    def _features(self, settings: Settings, *, is_shared: bool) -> dict[object, float]:
        features: dict[object, float] = {
            ("fixed", None if is_shared else _kind(settings)): 1.0,
            ("per_sample", _kind(settings)): float(_micro_batch(settings)),
        }
        if self._space.device_is_cpu and settings.num_workers:
            features["per_worker"] = float(settings.num_workers)
        return features

    def _queue_bytes(self, settings: Settings) -> float:
        """Batches that wait in the queues of the workers; they are in the host's memory."""
        if not self._space.device_is_cpu:
            return 0.0
        num_batches = settings.num_workers * settings.prefetch_factor
        return num_batches * _micro_batch(settings) * self._space.sample_bytes

    def _needs_at_least(self, settings: Settings, other: Settings) -> bool:
        """Whether these settings need at least as much memory as the others, by order alone."""
        if _kind(settings) != _kind(other):
            return False
        for name, (here, there) in settings.differences(other).items():
            is_indifferent = name == "precision" or (name in _HOST_ONLY and not self._space.device_is_cpu)
            is_less = name in _NEEDS_MORE and (here or 0) < (there or 0)
            is_roomier = name == "memory_fraction" and here > there
            if not is_indifferent and (is_less or is_roomier or name in _EITHER_WAY or name.startswith(KNOB_PREFIX)):
                return False
        return True


class _Regression:
    """Least squares over named features; it predicts only what the observations determine."""

    _TOLERANCE = 1e-6

    def __init__(self, rows: Sequence[Mapping[object, float]], values: Sequence[float]) -> None:
        self._columns: dict[object, int] = {}
        for row in rows:
            for name in row:
                self._columns.setdefault(name, len(self._columns))
        matrix = np.array([self._vector(row) for row in rows]).reshape(len(rows), len(self._columns))
        self._scale = np.abs(matrix).max(axis=0, initial=0.0)
        matrix = matrix / self._scale
        _, sizes, directions = np.linalg.svd(matrix, full_matrices=False)
        self._directions = directions[sizes > self._TOLERANCE * sizes.max(initial=0.0)]
        self._solution = np.linalg.lstsq(matrix, np.array(values), rcond=self._TOLERANCE)[0]

    def predict(self, row: Mapping[object, float]) -> float | None:
        """The value at these features; None where the observations leave it open."""
        if not all(name in self._columns for name in row):
            return None
        vector = np.array(self._vector(row)) / self._scale
        outside = vector - self._directions.T @ (self._directions @ vector)
        if np.linalg.norm(outside) > self._TOLERANCE * np.linalg.norm(vector):
            return None
        return float(vector @ self._solution)

    def _vector(self, row: Mapping[object, float]) -> list[float]:
        return [row.get(name, 0.0) for name in self._columns]


def _kind(settings: Settings) -> tuple[bool, bool]:
    """Settings with the same line: formats of the same width take the same memory."""
    return settings.precision in (Precision.BF16, Precision.FP16), settings.compile


def _micro_batch(settings: Settings) -> int:
    """Samples of one forward-backward; an unknown micro-batch is the same in all trials."""
    return settings.batch_size or 1
