"""Regression by a Gaussian process: each observation says most about the points nearest to it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NOISE_PRIORS = {1.0: 0.0, 3.0: -2.0, 6.0: -4.0}
"""Factors on the stated noise, with the logarithm of each factor's prior probability: machines shared with neighbours
are several times noisier than quiet machines."""

LARGE = 0.25
"""Standard deviation of the effect of a feature that may be large, however small the other effects are."""

TINY = 1e-12
"""Least variance: rounding often makes the variance at an observed point negative."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scales:
    """Sizes of effects, as standard deviations."""

    trend: float
    """Effect of a feature in proportion to its value."""
    alone: float
    """Effect of one feature by itself, except for features with large effects."""
    together: float
    """Additional effect of features in combination."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parts:
    """Similarity of two sets of points: rows for the first set, columns for the second."""

    trends: Array
    alone: Array
    """Sum over the features whose effects have the chosen scale."""
    large: Array
    """Sum over the features whose effects may be large."""
    together: Array
    """Product over all features."""


class GaussianProcess:
    """A prior of effects of single features, and of weaker effects in combination, around the observations' mean.

    Args:
        points: One row of features per observation, at least one. A distance of 1 makes effects differ.
        values: The observations.
        choices: Scales to choose from; the likeliest scales and noise factor win.
        noises: Standard deviations of the observations' noise on a quiet machine.
        num_trends: Number of leading features with additional effects in proportion to their value.
        num_large: Number of features after the trends whose effects may be large. The small effects of the remaining
            features, mostly switches, say nothing about these.
    """

    def __init__(
        self,
        points: Array,
        values: Array,
        choices: Sequence[Scales],
        noises: Array,
        *,
        num_trends: int = 0,
        num_large: int = 0,
    ) -> None:
        self._points, self._num_trends = points, num_trends
        self._is_large = np.zeros(points.shape[1])
        self._is_large[num_trends : num_trends + num_large] = 1.0
        self._centre, self._mean = points.mean(axis=0), float(values.mean())
        parts, centred = self._parts(points, points), values - self._mean
        likeliest = -math.inf
        for scales in choices:
            quiet = _covariance(parts, scales)
            for factor, prior in NOISE_PRIORS.items():
                covariance = quiet + np.diag((factor * noises) ** 2)
                likelihood = prior + _log_likelihood(covariance, centred, (factor * noises).min())
                if likelihood > likeliest:
                    likeliest, self._scales, chosen = likelihood, scales, covariance
                    self.noise_factor = factor
                    """Noise of the observations relative to a quiet machine."""
        self._inverse = np.linalg.inv(chosen)
        self._weights = self._inverse @ centred

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Means and standard deviations of the values at points, without noise."""
        across = self._across(points)
        variance = self._prior(points) - (across @ self._inverse * across).sum(axis=1)
        return self._mean + across @ self._weights, np.sqrt(np.maximum(variance, TINY))

    def differences(self, points: Array, other: Array) -> tuple[Array, Array]:
        """Means and standard deviations of the differences between values at points and the value at another point.

        Uncertainty common to both cancels: points that hardly differ are known to have hardly different values.
        """
        scales, there = self._scales, other[None, :]
        less = self._across(points) - self._across(there)
        prior = self._prior(points) + self._prior(there) - 2 * _covariance(self._parts(points, there), scales)[:, 0]
        variance = prior - (less @ self._inverse * less).sum(axis=1)
        return less @ self._weights, np.sqrt(np.maximum(variance, TINY))

    def _across(self, points: Array) -> Array:
        return _covariance(self._parts(points, self._points), self._scales)

    def _prior(self, points: Array) -> Array:
        """Variances of the values at points before any observation."""
        scales = self._scales
        trends = (points - self._centre)[:, : self._num_trends]
        alone = scales.alone**2 * (1 - self._is_large).sum() + LARGE**2 * self._is_large.sum()
        return np.asarray(scales.trend**2 * (trends**2).sum(axis=1) + alone + scales.together**2)

    def _parts(self, rows: Array, columns: Array) -> _Parts:
        """Similarity of points."""
        distances = np.abs(rows[:, None, :] - columns[None, :, :])
        here, there = ((points - self._centre)[:, : self._num_trends] for points in (rows, columns))
        alike = np.exp(-distances)
        return _Parts(
            trends=here @ there.T,
            alone=alike @ (1 - self._is_large),
            large=alike @ self._is_large,
            together=np.exp(-distances.sum(axis=2)),
        )


def _log_likelihood(covariance: Array, values: Array, least_noise: float) -> float:
    """Log-likelihood of values around 0, up to a constant common to all covariances.

    One factorisation is enough. In the Cholesky factor of the covariance bordered by the values, the last row holds the
    values as independent variables of variance 1. The corner only needs to make the matrix positive definite.
    """
    corner = 1.0 + 2 * float(values @ values) / least_noise**2
    factor = np.linalg.cholesky(np.block([[covariance, values[:, None]], [values[None, :], np.array([[corner]])]]))
    independent = factor[-1, :-1]
    return float(-0.5 * independent @ independent - np.log(np.diag(factor)[:-1]).sum())


def _covariance(parts: _Parts, scales: Scales) -> Array:
    alone = scales.alone**2 * parts.alone + LARGE**2 * parts.large
    return np.asarray(scales.trend**2 * parts.trends + alone + scales.together**2 * parts.together)
