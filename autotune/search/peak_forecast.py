"""How likely settings stay under the cap, from the peaks that were measured. Pure.

The memory model rules out what is sure not to fit. This weighs what may: weights, gradients and the optimizer's state
take the same in all settings, activations grow with the micro-batch and differ by format and compilation, by factors
that are known roughly before anything was measured and better afterwards.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass

import numpy as np

from autotune.search.gaussian_process import Array
from autotune.search.history import History
from autotune.settings import Precision, Settings
from autotune.space.search_space import SearchSpace

READING = 0.015
"""Standard deviation of a peak as a share: allocators reserve whole blocks, readings of host memory miss the peak."""

HOST_MISS = 0.015
"""Share of the peak that readings of host memory miss: they are seconds apart."""

BEYOND_CAP = 1.02
"""A trial that failed needed about this share of the cap, as far as a prediction below it is to be corrected."""
BEYOND_CAP_READING = 0.02

MAX_ITERATIONS = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class _Prior:
    mean: float
    deviation: float


HALF = _Prior(mean=math.log(0.68), deviation=0.15)
"""Logarithm of what activations take in formats of half the width, relative to the others."""
COMPILED = _Prior(mean=math.log(0.9), deviation=0.12)
"""The same of a compiled model."""
WORKSPACE = _Prior(mean=0.025, deviation=0.02)
"""Logarithm of what cuDNN's workspaces make of the whole."""
SEGMENTS = _Prior(mean=-0.03, deviation=0.05)
"""The same of segments that expand: what is lost between blocks becomes usable."""
ACCUMULATED = _Prior(mean=0.02, deviation=0.04)
"""Logarithm of what gradients that are kept make of the part that does not grow."""
UNKNOWN = 1.0
"""Standard deviation of the logarithm of a part of which nothing is known."""


class PeakForecast:
    """Peaks of settings, tried or not.

    Args:
        history: Finished trials; without a peak among them everything fits.
        space: Where they come from.
        cap_bytes: Peak memory that a trial may have.
    """

    def __init__(self, history: History, space: SearchSpace, cap_bytes: int) -> None:
        self._space, self._cap_bytes = space, cap_bytes
        self._is_cpu = space.device_is_cpu
        measured = [trial for trial in history.trials if trial.outcome.is_complete and trial.peak_memory_bytes]
        failed = [trial for trial in history.trials if trial.outcome.is_infeasible and not trial.lacks_host_memory]
        self._settings = [trial.settings for trial in measured]
        self._fitted = {_need(one, is_cpu=self._is_cpu) for one in self._settings}
        if not measured:
            return
        largest = max(_size(one) for one in self._settings)
        self._peaks = np.log([float(trial.peak_memory_bytes or 1) for trial in measured]) + HOST_MISS * self._is_cpu
        # The peak is rather convex: below some micro-batch it is the optimizer's own, which says little of larger ones.
        self._readings = np.array([READING * math.sqrt(largest / _size(one)) for one in self._settings])
        self._failed = [trial.settings for trial in failed]
        smallest = min(math.exp(peak) for peak in self._peaks)
        size = min(_size(one) for one in self._settings)
        self._priors = (
            _Prior(mean=math.log(smallest / 2), deviation=UNKNOWN),
            _Prior(mean=math.log(smallest / 2 / size), deviation=UNKNOWN),
            HALF,
            COMPILED,
            WORKSPACE,
            ACCUMULATED,
            _Prior(mean=math.log(smallest / 4), deviation=UNKNOWN),
            SEGMENTS,
        )
        self._solve()

    def fit_probability(self, settings: Settings) -> float:
        """How likely these settings stay under the cap, from 0 to 1; what needs no more than others did, does."""
        need = _need(settings, is_cpu=self._is_cpu)
        if not self._settings or any(need.is_within(fitted) for fitted in self._fitted):
            return 1.0
        slopes = self._slopes(settings, self._parts)
        deviation = math.sqrt(float(slopes @ self._covariance @ slopes) + READING**2)
        return 0.5 * math.erfc((self._log_peak(settings, self._parts) - math.log(self._cap_bytes)) / deviation / 2**0.5)

    def _solve(self) -> None:
        """The likeliest parts, by Gauss-Newton from the prior, and how sure they are."""
        means = np.array([prior.mean for prior in self._priors])
        weights = np.diag([1 / prior.deviation**2 for prior in self._priors])
        least = math.log(BEYOND_CAP * self._cap_bytes)
        parts = means
        for _ in range(MAX_ITERATIONS):
            short = [one for one in self._failed if self._log_peak(one, parts) < least]
            rows = [*self._settings, *short]
            targets = np.array([*self._peaks, *(least for _ in short)])
            readings = np.array([*self._readings, *(BEYOND_CAP_READING for _ in short)])
            slopes = np.array([self._slopes(one, parts) for one in rows]) / readings[:, None]
            rest = (targets - np.array([self._log_peak(one, parts) for one in rows])) / readings
            information = slopes.T @ slopes + weights
            step = np.linalg.solve(information, slopes.T @ rest - weights @ (parts - means))
            parts = parts + np.clip(step, -1.0, 1.0)
            if np.abs(step).max() < 1e-4:
                break
        self._parts = parts
        self._covariance = np.linalg.inv(information)

    def _shares(self, settings: Settings, parts: Array) -> tuple[float, float, float, float]:
        """Bytes that do not grow, bytes of activations, of workers, and of batches that wait, before workspaces."""
        fixed, per_sample, half, compiled, _, accumulated, worker, _ = parts
        is_half = _is_half(settings)
        kept = math.exp(fixed + accumulated * (settings.grad_accum_steps > 1))
        activations = _size(settings) * math.exp(per_sample + half * is_half + compiled * settings.compile)
        if not self._is_cpu:
            return kept, activations, 0.0, 0.0
        num_waiting = self._space.world_size * settings.num_workers * settings.prefetch_factor
        waiting = num_waiting * _size(settings) * self._space.sample_bytes
        return kept, activations, settings.num_workers * math.exp(worker), waiting

    def _log_peak(self, settings: Settings, parts: Array) -> float:
        whole = parts[4] * settings.cudnn_benchmark + parts[7] * settings.expandable_segments
        return math.log(sum(self._shares(settings, parts))) + float(whole)

    def _slopes(self, settings: Settings, parts: Array) -> Array:
        """Derivatives of the logarithm of the peak."""
        kept, activations, workers, waiting = self._shares(settings, parts)
        whole = kept + activations + workers + waiting
        is_half = _is_half(settings)
        return np.array(
            [
                kept / whole,
                activations / whole,
                activations / whole * is_half,
                activations / whole * settings.compile,
                1.0 * settings.cudnn_benchmark,
                kept / whole * (settings.grad_accum_steps > 1),
                workers / whole,
                1.0 * settings.expandable_segments,
            ]
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Need:
    """What of settings decides their peak."""

    kind: tuple[object, ...]
    """What may change it either way."""
    amounts: tuple[int, ...]
    """Of each of these more never needs less."""

    def is_within(self, other: _Need) -> bool:
        return self.kind == other.kind and all(map(operator.le, self.amounts, other.amounts))


def _need(settings: Settings, *, is_cpu: bool) -> _Need:
    amounts: tuple[int, ...] = (_size(settings), settings.cudnn_benchmark, settings.grad_accum_steps > 1)
    if is_cpu:
        amounts += (settings.num_workers, settings.num_workers * settings.prefetch_factor * _size(settings))
    kind = (settings.compile, _is_half(settings), settings.expandable_segments, settings.knobs)
    return _Need(kind=kind, amounts=amounts)


def _is_half(settings: Settings) -> bool:
    return settings.precision in (Precision.BF16, Precision.FP16)


def _size(settings: Settings) -> int:
    return settings.batch_size or 1
