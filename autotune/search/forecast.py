"""The expected rate of settings, tried or not, with an uncertainty: the basis for more trials and for finals. Pure.

Loader and compute are nearly separable, hence two regressions. The first predicts the compute-only rate, measured in
every trial on a cached batch. The second predicts the share of the compute-only rate reached by the whole job, from the
loader and the rate that the loader has to feed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from zlib import crc32

import numpy as np

from autotune.search.gaussian_process import Array, GaussianProcess, Scales
from autotune.search.history import FinishedTrial, History
from autotune.settings import SETTINGS, Settings

MAX_TRIALS = 100
"""Number of fastest trials used: slow trials say little about settings near the best, and the time grows."""

COMPUTE_NOISE, RATE_NOISE = 0.015, 0.03
"""Standard deviations of the logarithms from trial to trial."""
REMOTE = 0.1
"""Extra standard deviation per unit of the logarithm below the best: slow trials have other bottlenecks."""

REMEMBERED = 4096
"""Size of the cache of settings' features: settings near the best are asked for again and again."""

COMPUTE_SCALES = tuple(
    Scales(trend=0.3, alone=alone, together=together) for alone in (0.03, 0.1, 0.2) for together in (0.005, 0.02, 0.1)
)
SHARE_SCALES = tuple(
    Scales(trend=0.0, alone=alone, together=together)
    for alone in (0.01, 0.03, 0.1, 0.3)
    for together in (0.003, 0.01, 0.05, 0.2)
)

NUM_TRENDS = sum(len(setting.features.trends(Settings())) for setting in SETTINGS)
"""Number of compute features with effects in proportion to the feature; they come first."""
NUM_LARGE = sum(len(setting.features.large(Settings())) for setting in SETTINGS)
"""Number of the next compute features, with effects that may halve or double the rate."""

DEVIATIONS = np.linspace(-4.0, 4.0, 25)
"""Grid of an expectation, in standard deviations: wide, because the last hopes of a search lie far out."""
LIKELIHOODS = np.exp(-0.5 * DEVIATIONS**2) / np.exp(-0.5 * DEVIATIONS**2).sum()
"""Probability of each grid point."""

LEAST_SCATTERED = 8
"""Measured trials from which their scatter tells a noisy machine: the forecast errs more after fewer trials. After four
of GPT-2 on an H200, whose runs differ by 0.3 %, half of two minutes was kept for the finals of a noisy machine."""


def forecast(history: History) -> Forecast:
    """The forecast from the finished trials, cached for equal trials; needs at least one feasible trial."""
    return _forecast(history.informative.trials, history.script_settings)


def scatters(history: History) -> bool:
    """Whether the rates of trials scatter more than on a quiet machine; False for few trials."""
    return len(history.feasible) >= LEAST_SCATTERED and forecast(history).extra_noise_ratio > 0


@lru_cache(maxsize=2)
def _forecast(trials: tuple[FinishedTrial, ...], script_settings: Settings) -> Forecast:
    return Forecast(History(trials, script_settings))


class Forecast:
    """Rates of settings, from the finished trials.

    Without compute-only rates, as for callables, the rate itself counts as the compute-only rate, fully reached.

    Args:
        history: Finished trials, at least one feasible.
    """

    def __init__(self, history: History) -> None:
        fed = history.feasible[:MAX_TRIALS]
        self._tried = [trial.settings for trial in fed]
        self._is_whole = not all(trial.compute_samples_per_second for trial in fed)
        rated = self._compute_rates(history)[:MAX_TRIALS]
        values = np.log([rate for rate, _, _ in rated])
        noises = COMPUTE_NOISE / np.sqrt([num_runs for _, _, num_runs in rated]) + REMOTE * (values.max() - values)
        features = self._features([settings for _, settings, _ in rated])
        self._compute = GaussianProcess(
            features, values, COMPUTE_SCALES, noises, num_trends=NUM_TRENDS, num_large=NUM_LARGE
        )
        self._share = None if self._is_whole else self._shares_of(fed)

    @property
    def is_noisy(self) -> bool:
        """True when compute-only rates scatter more than on a quiet machine."""
        return self._compute.noise_factor > 1

    @property
    def extra_noise_ratio(self) -> float:
        """Standard deviation of a trial's rate, as a share, beyond that of a quiet machine; 0 on a quiet machine."""
        factors = [(COMPUTE_NOISE, self._compute.noise_factor)]
        if self._share is not None:
            factors.append((RATE_NOISE, self._share.noise_factor))
        return max(noise * factor if factor > 1 else 0.0 for noise, factor in factors)

    def fastest(self, trials: Sequence[FinishedTrial]) -> tuple[FinishedTrial, ...]:
        """Trials by their expected rate in a second measurement, the fastest first."""
        if not trials:
            return ()
        expected = self._log_rates([trial.settings for trial in trials])
        return tuple(trials[index] for index in np.argsort(-expected, kind="stable"))

    def rates(self, trials: Sequence[FinishedTrial]) -> dict[Settings, float]:
        """Expected samples per second of trials in a second measurement, by their settings."""
        return self.rates_of([trial.settings for trial in trials])

    def rates_of(self, settings: Sequence[Settings]) -> dict[Settings, float]:
        """Expected samples per second of settings, tried or not."""
        return dict(zip(settings, np.exp(self._log_rates(settings)).tolist(), strict=True)) if settings else {}

    def lead_over(self, trial: FinishedTrial) -> float:
        """Expected lead of the fastest trial over this trial, as a share, in a second measurement of both."""
        return float(self._log_rates(self._tried).max() - self._log_rates([trial.settings])[0])

    def gains(self, settings: Sequence[Settings], least: float = 0.0) -> list[float]:
        """Expected gains from trials, as shares of the best rate so far; a slower trial counts 0.

        Args:
            settings: Settings of one trial each.
            least: Share beyond which a gain counts.
        """
        if not settings:
            return []
        best = self._tried[int(self._log_rates(self._tried).argmax())]
        points = self._features([best, *settings])
        faster = _draws(*self._compute.differences(points[1:], points[0]))
        fed = np.zeros((len(settings), len(DEVIATIONS)))
        if self._share is not None:
            demands, _ = self._compute.predict(points)
            pairs = zip([best, *settings], demands, strict=True)
            points = np.array([_share_features(one, demand) for one, demand in pairs])
            own = min(0.0, float(self._share.predict(points[:1])[0][0]))
            fed = np.minimum(-own, _draws(*self._share.differences(points[1:], points[0])))
        above = np.maximum(0.0, faster[:, :, None] + fed[:, None, :] - least)
        return [float(gain) for gain in above @ LIKELIHOODS @ LIKELIHOODS]

    def _compute_rates(self, history: History) -> list[tuple[float, Settings, int]]:
        """Compute-only rates with their settings and the number of runs behind them, the highest first."""
        if self._is_whole:
            return [(trial.samples_per_second or 1.0, trial.settings, trial.num_runs) for trial in history.feasible]
        rated = [(trial.compute_samples_per_second or 0.0, trial.settings, 1) for trial in history.sound]
        return sorted((one for one in rated if one[0]), key=lambda one: -one[0])

    def _shares_of(self, fed: Sequence[FinishedTrial]) -> GaussianProcess:
        demands, _ = self._compute.predict(self._features([trial.settings for trial in fed]))
        features = [_share_features(trial.settings, demand) for trial, demand in zip(fed, demands, strict=True)]
        rates = np.log([trial.samples_per_second or 1.0 for trial in fed])
        noises = RATE_NOISE / np.sqrt([trial.num_runs for trial in fed]) + REMOTE * (rates.max() - rates)
        return GaussianProcess(np.array(features), rates - demands, SHARE_SCALES, noises)

    def _log_rates(self, settings: Sequence[Settings]) -> Array:
        compute, _, share, _ = self._parts(settings)
        return np.asarray(compute + np.minimum(0.0, share))

    def _parts(self, settings: Sequence[Settings]) -> tuple[Array, Array, Array, Array]:
        """Logarithms of compute-only rates and of the reached shares, each with its deviation."""
        compute, compute_deviations = self._compute.predict(self._features(settings))
        if self._share is None:
            return compute, compute_deviations, np.zeros(len(settings)), np.zeros(len(settings))
        features = [_share_features(one, demand) for one, demand in zip(settings, compute, strict=True)]
        return compute, compute_deviations, *self._share.predict(np.array(features))

    def _features(self, settings: Sequence[Settings]) -> Array:
        if not self._is_whole:
            return np.array([_compute_features(one) for one in settings])
        return np.array([(*_compute_features(one), *_loader_features(one)) for one in settings])


def _draws(means: Array, deviations: Array) -> Array:
    """Values at the grid points, one row for each mean and deviation."""
    return np.asarray(means[:, None] + deviations[:, None] * DEVIATIONS)


@lru_cache(maxsize=REMEMBERED)
def _compute_features(settings: Settings) -> tuple[float, ...]:
    """Trends first, then effects that halve or double the rate, then smaller effects."""
    parts = (each.features for each in SETTINGS)
    kinds = zip(*((part.trends(settings), part.large(settings), part.compute(settings)) for part in parts), strict=True)
    return (*(number for kind in kinds for numbers in kind for number in numbers), *_knob_features(settings))


def _share_features(settings: Settings, demand: float) -> tuple[float, ...]:
    return (*_loader_features(settings), 2.0 * demand)


@lru_cache(maxsize=REMEMBERED)
def _loader_features(settings: Settings) -> tuple[float, ...]:
    return (*(number for each in SETTINGS for number in each.features.loader(settings)), *_knob_features(settings))


def _knob_features(settings: Settings) -> tuple[float, ...]:
    """Features of the user's own knobs; any two values are far apart."""
    return tuple(float(crc32(value.encode())) for _, value in settings.knobs)
