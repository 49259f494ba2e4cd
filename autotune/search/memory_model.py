"""Peak memory of settings that were not tried, from those that were: lines in the micro-batch, and order. Pure.

The peak is rather convex than straight: below some micro-batch it is the optimizer's own, above it the activations'. So
large micro-batches count for more in the fit, and what lies beyond the largest that was measured is taken to need more
than the line says. A trial that failed tells only that it needs more than the cap: how much it held when it was ended
or refused says nothing of how much more it wanted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from autotune.search.history import FinishedTrial, History
from autotune.settings import Precision, Settings
from autotune.space.search_space import KNOB_PREFIX, SearchSpace
from autotune.units import format_bytes

PREDICTION_MARGIN = 1.03
"""A prediction rules out above this share of the cap: two points give the line to a few percent."""

HOST_MARGIN = 1.0
"""Share of the cap that likely peaks may reach on a CPU: its readings are seconds apart and miss the very peak, so that
the margin of the prediction is used up already."""

FAILED_SHARE = 1.05
"""A trial that failed needed at least this share of the cap, as far as a line must pass somewhere."""

BEYOND_SHARE = 0.1
"""Beyond the largest micro-batch that was measured, the likely peak lies this far from the line to the proportional
growth, which is sure not to be exceeded: two points may lie on either side of the bend."""

SURE_BEYOND_SHARE = 0.02
SURE_NUM_SIZES = 3
"""With so many micro-batches on it a line is trusted further."""

FLAT_RATIO = 1.05
FLAT_BEYOND_SHARE = 0.25
"""The same where the peaks measured differ by less than that: they are the optimizer's, and say nothing of the bend."""

HOPED_SHARE = 0.25
"""Where one point is all there is, and a larger micro-batch is worth a risk, it is hoped to need this share of what
proportional growth would add."""

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
        cap_bytes: Peak memory that a trial may have.
        fixed_bytes: At least so much of every peak does not grow with the micro-batch.
    """

    def __init__(self, history: History, space: SearchSpace, cap_bytes: int, fixed_bytes: float = 0.0) -> None:
        self._space = space
        self._fixed_bytes = fixed_bytes
        self._cap_bytes = cap_bytes
        self._measured = [trial for trial in history.trials if trial.outcome.is_complete and trial.peak_memory_bytes]
        self._failed = [trial for trial in history.trials if trial.outcome.is_infeasible]
        self._failed_of_kind: defaultdict[tuple[bool, bool], list[FinishedTrial]] = defaultdict(list)
        for trial in self._failed:
            self._failed_of_kind[_kind(trial.settings)].append(trial)

    def predicted_peak_bytes(self, settings: Settings) -> float | None:
        """The peak that the trials determine for these settings; None while they do not.

        One trial of a (precision, compile) is a point, not a line: it determines other loader settings at its own
        micro-batch, and nothing at another one.
        """
        return self._from_line(self._lines, settings, is_shared=False)

    def is_determined(self, settings: Settings) -> bool:
        """Whether the trials give more than a bound for these settings."""
        return self._on_some_line(settings) is not None

    def smaller_failure(self, settings: Settings) -> str | None:
        """Which trial over the cap shows that these settings would be too, as one sentence; None where none does."""
        for trial in self._failed_of_kind.get(_kind(settings), ()):
            if self._needs_at_least(settings, trial):
                return f"Trial {trial.number} needed more than the cap with the same or smaller settings."
        return None

    def ruled_out(self, settings: Settings) -> str | None:
        """Why these settings would need more than the cap, as one sentence; None while nothing says so."""
        failure = self.smaller_failure(settings)
        if failure is not None:
            return failure
        predicted = self.predicted_peak_bytes(settings)
        if predicted is not None and predicted > PREDICTION_MARGIN * self._cap_bytes:
            return f"{format_bytes(predicted)} predicted, the cap is {format_bytes(self._cap_bytes)}."
        return None

    def unlikely(self, settings: Settings) -> str | None:
        """Why these settings would rather not stay under the cap, by their likely peak; None while they may."""
        likely = self.likely_peak_bytes(settings)
        margin = PREDICTION_MARGIN if self.predicted_peak_bytes(settings) is not None else 1.0
        if self._space.device_is_cpu:
            margin = HOST_MARGIN
        if likely is None or likely <= margin * self._cap_bytes:
            return None
        return f"Up to {format_bytes(likely)} expected, the cap is {format_bytes(self._cap_bytes)}."

    def hoped_peak_bytes(self, settings: Settings) -> float | None:
        """A guess for a micro-batch beyond those measured that is as often too low as too high; None without a trial.

        Most of the memory of a small micro-batch is not its activations'.
        """
        same = [trial for trial in self._measured if _kind(trial.settings) == _kind(settings)]
        nearest = max(same or self._measured, key=lambda trial: _micro_batch(trial.settings), default=None)
        if nearest is None:
            return None
        peak = float(nearest.peak_memory_bytes or 0)
        on_line = self._on_some_line(settings)
        return on_line or peak + HOPED_SHARE * (self._bound(settings, nearest) - peak)

    def likely_peak_bytes(self, settings: Settings) -> float | None:
        """The prediction; where there is none, a guess that is rather too high than too low.

        First the lines are taken to start at the same point, since weights and optimizer are the same in every
        precision. Failing that, the peak of a trial grows in proportion to the micro-batch, and a worker is taken to be
        large until one was seen. Formats that were not measured at all are taken to need what the others do, and those
        of half the width no more than the others at the same or a larger micro-batch. None where nothing was measured.
        """
        same = [trial for trial in self._measured if _kind(trial.settings) == _kind(settings)]
        wider = [trial for trial in self._measured if _is_wider_and_no_smaller(trial.settings, settings)]
        bound = min((self._bound(settings, trial) for trial in [*(same or self._measured), *wider]), default=None)
        on_line = self._on_some_line(settings)
        if on_line is None or bound is None:
            return bound
        sizes = {_micro_batch(trial.settings) for trial in same}
        if _micro_batch(settings) <= max(sizes, default=0):
            return on_line
        return on_line + self._beyond_share(same, len(sizes)) * max(0.0, bound - on_line)

    def _beyond_share(self, same: Sequence[FinishedTrial], num_sizes: int) -> float:
        """How far beyond the largest micro-batch the likely peak lies from the line to the proportional growth."""
        rising = sorted(same, key=lambda trial: _micro_batch(trial.settings))
        peaks = [float(trial.peak_memory_bytes or 0) for trial in rising]
        if num_sizes > 1 and peaks[-1] < FLAT_RATIO * peaks[0]:
            return FLAT_BEYOND_SHARE
        return SURE_BEYOND_SHARE if num_sizes >= SURE_NUM_SIZES else BEYOND_SHARE

    def _on_some_line(self, settings: Settings) -> float | None:
        predicted = self.predicted_peak_bytes(settings)
        if predicted is not None:
            return predicted
        return self._from_line(self._lines_from_one_point, settings, is_shared=True)

    def _bound(self, settings: Settings, trial: FinishedTrial) -> float:
        peak = float(trial.peak_memory_bytes or 0)
        fixed = min(self._fixed_bytes, peak)
        bound = fixed + (peak - fixed) * max(1.0, _micro_batch(settings) / _micro_batch(trial.settings))
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
        points = [(trial.settings, float(trial.peak_memory_bytes or 0)) for trial in self._measured]
        lines = self._regression(points, is_shared=is_shared)
        least = FAILED_SHARE * self._cap_bytes
        known = {_kind(settings) for settings, _ in points}
        failed = [t.settings for t in self._failed if _kind(t.settings) in known and not t.lacks_host_memory]
        predicted = [self._from_line(lines, settings, is_shared=is_shared) for settings in failed]
        unexplained = [s for s, peak in zip(failed, predicted, strict=True) if peak is None or peak < least]
        if not unexplained:
            return lines
        return self._regression([*points, *((settings, least) for settings in unexplained)], is_shared=is_shared)

    def _regression(self, points: Sequence[tuple[Settings, float]], *, is_shared: bool) -> _Regression:
        largest: dict[object, int] = {}
        for settings, _ in points:
            largest[_kind(settings)] = max(largest.get(_kind(settings), 1), _micro_batch(settings))
        rows = [self._features(settings, is_shared=is_shared) for settings, _ in points]
        values = [peak - self._queue_bytes(settings) for settings, peak in points]
        weights = [_micro_batch(settings) / largest[_kind(settings)] for settings, _ in points]
        return _Regression(rows, values, weights)

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
        num_batches = self._space.world_size * settings.num_workers * settings.prefetch_factor
        return num_batches * _micro_batch(settings) * self._space.sample_bytes

    def _needs_at_least(self, settings: Settings, trial: FinishedTrial) -> bool:
        """Whether these settings need at least as much memory as those of a trial of their kind did, by order alone."""
        other = trial.settings
        is_of_device = not self._space.device_is_cpu and not trial.lacks_host_memory
        for name, (here, there) in settings.differences(other).items():
            is_indifferent = name == "precision" or (name in _HOST_ONLY and is_of_device)
            is_less = name in _NEEDS_MORE and (here or 0) < (there or 0)
            is_roomier = name == "memory_fraction" and here > there
            if not is_indifferent and (is_less or is_roomier or name in _EITHER_WAY or name.startswith(KNOB_PREFIX)):
                return False
        return True


class _Regression:
    """Least squares over named features; it predicts only what the observations determine."""

    _TOLERANCE = 1e-6

    def __init__(
        self, rows: Sequence[Mapping[object, float]], values: Sequence[float], weights: Sequence[float]
    ) -> None:
        self._columns: dict[object, int] = {}
        for row in rows:
            for name in row:
                self._columns.setdefault(name, len(self._columns))
        matrix = np.array([self._vector(row) for row in rows]).reshape(len(rows), len(self._columns))
        self._scale = np.abs(matrix).max(axis=0, initial=0.0)
        matrix = matrix / self._scale
        _, sizes, directions = np.linalg.svd(matrix, full_matrices=False)
        self._directions = directions[sizes > self._TOLERANCE * sizes.max(initial=0.0)]
        scaled = np.array(weights).reshape(-1, 1)
        self._solution = np.linalg.lstsq(scaled * matrix, scaled[:, 0] * values, rcond=self._TOLERANCE)[0]

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


def _is_wider_and_no_smaller(other: Settings, settings: Settings) -> bool:
    """Whether others compute the same in a wider format with at least as large a micro-batch."""
    (is_half, is_compiled), (other_is_half, other_is_compiled) = _kind(settings), _kind(other)
    is_wider = is_half and not other_is_half and other_is_compiled == is_compiled
    return is_wider and _micro_batch(other) >= _micro_batch(settings)


def _micro_batch(settings: Settings) -> int:
    """Samples of one forward-backward; an unknown micro-batch is the same in all trials."""
    return settings.batch_size or 1
