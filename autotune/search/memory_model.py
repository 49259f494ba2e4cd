"""Peak memory of untried settings, from tried ones: by lines in the micro-batch, and by order. Pure.

The peak is convex in the micro-batch: a small one's is the optimizer's own, a large one's comes from activations. Large
micro-batches therefore count for more in the fit, and beyond the largest measured one the model expects more than the
line. A failed trial tells only of a need above the cap, not the amount.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from autotune.search.history import FinishedTrial, History
from autotune.settings import SETTINGS, Precision, Settings
from autotune.settings.setting import Memory
from autotune.space.search_space import KNOB_PREFIX, SearchSpace
from autotune.units import format_bytes

PREDICTION_MARGIN = 1.03
"""Share of the cap above which a prediction rules settings out: two points give the line to a few percent."""

HOST_MARGIN = 1.0
"""Share of the cap allowed to likely peaks on a CPU: readings seconds apart miss the peak and use up the margin."""

FAILED_SHARE = 1.05
"""Least need assumed for a failed trial, as a share of the cap, because a line must pass somewhere."""

BEYOND_SHARE = 0.1
"""Position of the likely peak beyond the largest measured micro-batch: this share of the way from the line to
proportional growth, a sure upper bound. The two points of a line may lie on different sides of the bend."""

SURE_BEYOND_SHARE = 0.02
SURE_NUM_SIZES = 3
"""Number of micro-batches from which a line is trusted further, with SURE_BEYOND_SHARE."""

FLAT_RATIO = 1.05
FLAT_BEYOND_SHARE = 0.25
"""Share used when the measured peaks differ by less than FLAT_RATIO: flat peaks are the optimizer's."""

HOPED_SHARE = 0.25
"""With a single point, a larger micro-batch is hoped to need this share of what proportional growth would add."""

UNKNOWN_WORKER_SHARE = 0.5
"""Memory of a worker before the first was seen, as a share of the training process. A forked worker shares most of its
pages; a spawned worker imports the script again but holds no model."""

_NEEDS_MORE = frozenset(setting.name for setting in SETTINGS if setting.memory is Memory.MORE)
"""Settings whose larger or true value never needs less memory."""

_EITHER_WAY = frozenset(setting.name for setting in SETTINGS if setting.memory is Memory.EITHER)
"""Settings that may change the peak either way, like knobs. Settings in neither set hardly change it."""

_HOST_ONLY = frozenset(setting.name for setting in SETTINGS if setting.is_memory_of_host)
"""Settings that cost only the host's memory."""


class MemoryModel:
    """Peak memory of any settings, from the finished trials.

    On an accelerator the peak is a line in the micro-batch for each pair of precision width and compile, without the
    loader's workers. On a CPU every worker adds to the peak, and so do the batches in the queues, whose size is known.

    Args:
        history: Finished trials.
        space: Space of the trials.
        cap_bytes: Largest peak memory allowed for a trial.
        fixed_bytes: Part of every peak, at least, that does not grow with the micro-batch.
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
        """The peak of these settings if the trials determine it; None otherwise.

        A single trial of a pair (precision, compile) is a point, not a line: it determines other loader settings at the
        same micro-batch, and nothing at another.
        """
        return self._from_line(self._lines, settings, is_shared=False)

    def is_determined(self, settings: Settings) -> bool:
        """True when the trials give more than a bound for these settings."""
        return self._on_some_line(settings) is not None

    def smaller_failure(self, settings: Settings) -> str | None:
        """Names, in one sentence, a trial over the cap with the same or smaller settings; None without such a trial."""
        for trial in self._failed_of_kind.get(_kind(settings), ()):
            if self._needs_at_least(settings, trial):
                return f"Trial {trial.number} needed more than the cap with the same or smaller settings."
        return None

    def ruled_out(self, settings: Settings) -> str | None:
        """The reason why these settings would exceed the cap, as a sentence; None without evidence."""
        failure = self.smaller_failure(settings)
        if failure is not None:
            return failure
        predicted = self.predicted_peak_bytes(settings)
        if predicted is not None and predicted > PREDICTION_MARGIN * self._cap_bytes:
            return f"{format_bytes(predicted)} predicted, the cap is {format_bytes(self._cap_bytes)}."
        return None

    def unlikely(self, settings: Settings) -> str | None:
        """The reason why these settings are likely to exceed the cap, as a sentence; None if the settings may fit."""
        likely = self.likely_peak_bytes(settings)
        margin = PREDICTION_MARGIN if self.predicted_peak_bytes(settings) is not None else 1.0
        if self._space.device_is_cpu:
            margin = HOST_MARGIN
        if likely is None or likely <= margin * self._cap_bytes:
            return None
        return f"Up to {format_bytes(likely)} expected, the cap is {format_bytes(self._cap_bytes)}."

    def hoped_peak_bytes(self, settings: Settings) -> float | None:
        """An unbiased guess for a micro-batch above all measured sizes; None without a trial.

        Most of a small micro-batch's memory is not activations.
        """
        same = [trial for trial in self._measured if _kind(trial.settings) == _kind(settings)]
        nearest = max(same or self._measured, key=lambda trial: _micro_batch(trial.settings), default=None)
        if nearest is None:
            return None
        peak = float(nearest.peak_memory_bytes or 0)
        on_line = self._on_some_line(settings)
        return on_line or peak + HOPED_SHARE * (self._bound(settings, nearest) - peak)

    def likely_peak_bytes(self, settings: Settings) -> float | None:
        """The predicted peak, or else a guess on the high side; None without a measurement.

        The first guess lets all lines start at the same point, since weights and optimizer are the same in every
        precision. The second guess lets a trial's peak grow in proportion to the micro-batch, and assumes large workers
        until one was seen. An unmeasured format is assumed to need as much as the measured formats; a format of half
        the width, no more than wider formats at the same or a larger micro-batch.
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
        """Position of the likely peak between the line and proportional growth, beyond the largest micro-batch."""
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
        """Host memory of the batches waiting in the workers' queues."""
        if not self._space.device_is_cpu:
            return 0.0
        num_batches = self._space.world_size * settings.num_workers * settings.prefetch_factor
        return num_batches * _micro_batch(settings) * self._space.sample_bytes

    def _needs_at_least(self, settings: Settings, trial: FinishedTrial) -> bool:
        """True when these settings need at least the memory of a trial of their kind, by order alone."""
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
    """Least squares over named features; predicts only values determined by the observations."""

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
        """The value at these features; None when the observations leave it open."""
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
    """The key of settings on the same line: formats of the same width take the same memory."""
    return settings.precision in (Precision.BF16, Precision.FP16), settings.compile


def _is_wider_and_no_smaller(other: Settings, settings: Settings) -> bool:
    """True when `other` computes the same in a wider format, with at least as large a micro-batch."""
    (is_half, is_compiled), (other_is_half, other_is_compiled) = _kind(settings), _kind(other)
    is_wider = is_half and not other_is_half and other_is_compiled == is_compiled
    return is_wider and _micro_batch(other) >= _micro_batch(settings)


def _micro_batch(settings: Settings) -> int:
    """Samples of one forward-backward pass; an unknown micro-batch is the same in all trials."""
    return settings.batch_size or 1
