"""The probability that settings stay under the cap, from measured peaks. Pure.

The memory model rules out settings sure to exceed the cap; this forecast weighs the rest. Weights, gradients and the
optimizer's state take the same memory in all settings. Activations grow with the micro-batch and differ by format and
compilation. The factors are known roughly in advance and better after each measurement.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass

import numpy as np

from autotune.search.gaussian_process import Array
from autotune.search.history import History
from autotune.settings import BY_NAME, SETTINGS, Settings
from autotune.settings.precision import HALF as HALF_WIDTH
from autotune.settings.setting import Memory, PeakFactor
from autotune.space.search_space import SearchSpace

READING = 0.015
"""Standard deviation of a measured peak as a share: allocators reserve blocks, host readings miss the peak. Peaks that
scatter more around the fit have a larger deviation: in one process of GPT-2 on an H100 the same settings reserved 19.0
to 21.3 GiB, by the order of the settings before."""

PRIOR_READINGS = 4.0
"""Number of readings that the expected deviation is worth beside the measured scatter."""

HOST_MISS = 0.015
"""Share of the peak missed by readings of host memory, because they are seconds apart."""

BEYOND_CAP = 1.02
"""Share of the cap assumed as the need of a failed trial whose predicted need is lower."""
BEYOND_CAP_READING = 0.02

ESTIMATED = 0.3
"""Standard deviation of the logarithm of the fixed part when the probe gives an estimate."""

MAX_ITERATIONS = 12


HALF = PeakFactor(mean=math.log(0.68), deviation=0.15)
"""Logarithm of the activations' memory in formats of half the width, relative to other formats."""
COMPILED = PeakFactor(mean=math.log(0.9), deviation=0.12)
"""Logarithm of the activations' memory in a compiled model, relative to an eager one."""
FACTORS = tuple((setting.name, setting.peak_factor) for setting in SETTINGS if setting.peak_factor is not None)
"""Switches that change the whole peak, with the prior of the logarithm of the change."""
EITHER_WAY = tuple(setting.name for setting in SETTINGS if setting.memory is Memory.EITHER)
"""Settings that may raise or lower the peak."""
ACCUMULATED = PeakFactor(mean=0.02, deviation=0.04)
"""Logarithm of the fixed part's growth from accumulated gradients."""
NUM_SHARES = 6
"""Number of parts before the factors of the whole peak."""
UNKNOWN = 1.0
"""Standard deviation of the logarithm of a completely unknown part."""


class PeakForecast:
    """Peaks of settings, tried or not.

    Args:
        history: Finished trials; without a measured peak, every setting fits.
        space: Space of the trials.
        cap_bytes: Largest peak memory of a trial.
        fixed_bytes: Estimate of the part of every peak that does not grow with the micro-batch; None if unknown.
    """

    def __init__(
        self, history: History, space: SearchSpace, cap_bytes: float, fixed_bytes: float | None = None
    ) -> None:
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
        # The peak is convex: below some micro-batch it is the optimizer's own, and says little about larger ones.
        self._readings = np.array([READING * math.sqrt(largest / _size(one)) for one in self._settings])
        self._failed = [trial.settings for trial in failed]
        smallest = min(math.exp(peak) for peak in self._peaks)
        size = min(_size(one) for one in self._settings)
        fixed, deviation = smallest / 2, UNKNOWN
        if fixed_bytes is not None and 0 < fixed_bytes < smallest:
            fixed, deviation = fixed_bytes, ESTIMATED
        self._priors = (
            PeakFactor(mean=math.log(fixed), deviation=deviation),
            PeakFactor(mean=math.log((smallest - fixed) / size), deviation=UNKNOWN),
            HALF,
            COMPILED,
            ACCUMULATED,
            PeakFactor(mean=math.log(smallest / 4), deviation=UNKNOWN),
            *(factor for _, factor in FACTORS),
        )
        self._scatter = 1.0
        self._solve()
        self._scatter = self._measured_scatter()
        if self._scatter > 1.0:
            self._solve()

    def fit_probability(self, settings: Settings) -> float:
        """Probability, 0 to 1, that settings stay under the cap; 1 when a trial with at least the same need did."""
        need = _need(settings, is_cpu=self._is_cpu)
        if not self._settings or any(need.is_within(fitted) for fitted in self._fitted):
            return 1.0
        slopes = self._slopes(settings, self._parts)
        deviation = math.sqrt(float(slopes @ self._covariance @ slopes) + (self._scatter * READING) ** 2)
        return 0.5 * math.erfc((self._log_peak(settings, self._parts) - math.log(self._cap_bytes)) / deviation / 2**0.5)

    def _solve(self) -> None:
        """Finds the likeliest parts by Gauss-Newton steps from the prior, and their covariance."""
        means = np.array([prior.mean for prior in self._priors])
        weights = np.diag([1 / prior.deviation**2 for prior in self._priors])
        least = math.log(BEYOND_CAP * self._cap_bytes)
        parts = means
        for _ in range(MAX_ITERATIONS):
            short = [one for one in self._failed if self._log_peak(one, parts) < least]
            rows = [*self._settings, *short]
            targets = np.array([*self._peaks, *(least for _ in short)])
            readings = np.array([*self._scatter * self._readings, *(BEYOND_CAP_READING for _ in short)])
            slopes = np.array([self._slopes(one, parts) for one in rows]) / readings[:, None]
            rest = (targets - np.array([self._log_peak(one, parts) for one in rows])) / readings
            information = slopes.T @ slopes + weights
            step = np.linalg.solve(information, slopes.T @ rest - weights @ (parts - means))
            parts = parts + np.clip(step, -1.0, 1.0)
            if np.abs(step).max() < 1e-4:
                break
        self._parts = parts
        self._covariance = np.linalg.inv(information)

    def _measured_scatter(self) -> float:
        """Deviation of the measured peaks from the fit, as a multiple of the expected deviation, at least 1."""
        slopes = np.array([self._slopes(one, self._parts) for one in self._settings]) / self._readings[:, None]
        fitted = np.array([self._log_peak(one, self._parts) for one in self._settings])
        squares = float((((self._peaks - fitted) / self._readings) ** 2).sum())
        num_free = len(self._settings) - float(np.trace(slopes @ self._covariance @ slopes.T))
        return math.sqrt(max(1.0, (PRIOR_READINGS + squares) / (PRIOR_READINGS + max(0.0, num_free))))

    def _shares(self, settings: Settings, parts: Array) -> tuple[float, float, float, float]:
        """Bytes of the fixed part, of activations, of workers and of waiting batches, before workspaces."""
        fixed, per_sample, half, compiled, accumulated, worker = parts[:NUM_SHARES]
        is_half = _is_half(settings)
        constant = math.exp(fixed + accumulated * (settings.grad_accum_steps > 1))
        activations = _size(settings) * math.exp(per_sample + half * is_half + compiled * settings.compile)
        if not self._is_cpu:
            return constant, activations, 0.0, 0.0
        num_waiting = self._space.world_size * settings.num_workers * settings.prefetch_factor
        waiting = num_waiting * _size(settings) * self._space.sample_bytes
        return constant, activations, settings.num_workers * math.exp(worker), waiting

    def _log_peak(self, settings: Settings, parts: Array) -> float:
        whole = sum(part * on for part, on in zip(parts[NUM_SHARES:], _switches(settings), strict=True))
        return math.log(sum(self._shares(settings, parts))) + float(whole)

    def _slopes(self, settings: Settings, parts: Array) -> Array:
        """Derivatives of the logarithm of the peak."""
        constant, activations, workers, waiting = self._shares(settings, parts)
        whole = constant + activations + workers + waiting
        is_half = _is_half(settings)
        return np.array(
            [
                constant / whole,
                activations / whole,
                activations / whole * is_half,
                activations / whole * settings.compile,
                constant / whole * (settings.grad_accum_steps > 1),
                workers / whole,
                *_switches(settings),
            ]
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Need:
    """The part of settings that decides their peak."""

    kind: tuple[object, ...]
    """Settings that may raise or lower the peak."""
    amounts: tuple[int, ...]
    """Settings for which a larger value never needs less memory."""

    def is_within(self, other: _Need) -> bool:
        return self.kind == other.kind and all(map(operator.le, self.amounts, other.amounts))


def _need(settings: Settings, *, is_cpu: bool) -> _Need:
    amounts: tuple[int, ...] = (_size(settings), settings.grad_accum_steps > 1)
    amounts += tuple(getattr(settings, name) for name, _ in FACTORS if BY_NAME[name].memory is Memory.MORE)
    if is_cpu:
        amounts += (settings.num_workers, settings.num_workers * settings.prefetch_factor * _size(settings))
    either = tuple(getattr(settings, name) for name in EITHER_WAY)
    kind = (settings.compile, _is_half(settings), *either, settings.knobs)
    return _Need(kind=kind, amounts=amounts)


def _switches(settings: Settings) -> tuple[float, ...]:
    """1 for each switch of FACTORS in the on state, 0 otherwise."""
    return tuple(1.0 * getattr(settings, name) for name, _ in FACTORS)


def _is_half(settings: Settings) -> bool:
    return settings.precision in HALF_WIDTH


def _size(settings: Settings) -> int:
    return settings.batch_size or 1
