"""Regression by a Gaussian process: what was measured says most of what differs least from it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NOISE_PRIORS = {1.0: 0.0, 3.0: -2.0}
"""What the noise may be of what was said, and the logarithm of how likely that is beforehand: machines with neighbours
are several times noisier than quiet ones."""

LARGE = 0.25
"""Standard deviation of the effect of a feature that may be large however small the others' are."""

TINY = 1e-12
"""Least variance: rounding makes that of a point measured often negative."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scales:
    """How large effects are taken to be, as standard deviations."""

    trend: float
    """Of what a feature does in proportion to its value."""
    alone: float
    """Of what one feature does by itself, unless it may be large."""
    together: float
    """Of what features do beyond that in combination."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parts:
    """Likeness of two lots of points, each of the first with each of the second."""

    trends: Array
    alone: Array
    """Feature by feature, of those whose effects have the chosen scale."""
    large: Array
    """Of those whose effects may be large."""
    together: Array
    """In all features at once."""


class GaussianProcess:
    """A prior of effects of single features and of weaker ones in combination, around the observations' mean.

    Args:
        points: One row of features per observation, at least one. A distance of 1 makes effects differ.
        values: The observations.
        noises: Standard deviations of the observations' noise on a quiet machine.
        num_trends: So many of the first features also have effects in proportion to them.
        num_large: So many of the features after them may have large effects. That the others do little, as most of
            many switches do, says nothing of these.
        choices: Scales to choose from: those under which the observations are likeliest count, and so of the noise.
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
                    """How many times as noisy as on a quiet machine the observations are."""
        self._inverse = np.linalg.inv(chosen)
        self._weights = self._inverse @ centred

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Means and standard deviations of the values at points, noise left out."""
        across = self._across(points)
        variance = self._prior(points) - (across @ self._inverse * across).sum(axis=1)
        return self._mean + across @ self._weights, np.sqrt(np.maximum(variance, TINY))

    def differences(self, points: Array, other: Array) -> tuple[Array, Array]:
        """Means and standard deviations of how much higher the values at points are than that at another point.

        What is not known of both alike is in neither: points that hardly differ are known to be hardly different.
        """
        scales, there = self._scales, other[None, :]
        less = self._across(points) - self._across(there)
        prior = self._prior(points) + self._prior(there) - 2 * _covariance(self._parts(points, there), scales)[:, 0]
        variance = prior - (less @ self._inverse * less).sum(axis=1)
        return less @ self._weights, np.sqrt(np.maximum(variance, TINY))

    def _across(self, points: Array) -> Array:
        return _covariance(self._parts(points, self._points), self._scales)

    def _prior(self, points: Array) -> Array:
        """Variances of the values at points before anything was observed."""
        scales = self._scales
        trends = (points - self._centre)[:, : self._num_trends]
        alone = scales.alone**2 * (1 - self._is_large).sum() + LARGE**2 * self._is_large.sum()
        return np.asarray(scales.trend**2 * (trends**2).sum(axis=1) + alone + scales.together**2)

    def _parts(self, rows: Array, columns: Array) -> _Parts:
        """Likeness of points."""
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
    """How likely values are around 0, but for what is the same for all covariances.

    One factorisation tells all: of the covariance bordered by the values, the last row of the factor holds these as
    independent values of variance 1, however large the corner is beyond the least that makes it positive definite.
    """
    corner = 1.0 + 2 * float(values @ values) / least_noise**2
    factor = np.linalg.cholesky(np.block([[covariance, values[:, None]], [values[None, :], np.array([[corner]])]]))
    independent = factor[-1, :-1]
    return float(-0.5 * independent @ independent - np.log(np.diag(factor)[:-1]).sum())


def _covariance(parts: _Parts, scales: Scales) -> Array:
    alone = scales.alone**2 * parts.alone + LARGE**2 * parts.large
    return np.asarray(scales.trend**2 * parts.trends + alone + scales.together**2 * parts.together)
