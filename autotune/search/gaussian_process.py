"""Regression by a Gaussian process: what was measured says most of what differs least from it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NOISE_PRIORS = {1.0: 0.0, 3.0: -2.0}
"""What the noise may be of what was said, and the logarithm of how likely that is beforehand: machines with neighbours
are several times noisier than quiet ones."""

TINY = 1e-12
"""Least variance: rounding makes that of a point measured often negative."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scales:
    """How large effects are taken to be, as standard deviations."""

    trend: float
    """Of what a feature does in proportion to its value."""
    alone: float
    """Of what one feature does by itself."""
    together: float
    """Of what features do beyond that in combination."""


class GaussianProcess:
    """A prior of effects of single features and of weaker ones in combination, around the observations' mean.

    Args:
        points: One row of features per observation, at least one. A distance of 1 makes effects differ.
        values: The observations.
        noises: Standard deviations of the observations' noise on a quiet machine.
        num_trends: So many of the first features also have effects in proportion to them.
        choices: Scales to choose from: those under which the observations are likeliest count, and so of the noise.
    """

    def __init__(
        self, points: Array, values: Array, choices: Sequence[Scales], noises: Array, num_trends: int = 0
    ) -> None:
        self._points, self._num_trends = points, num_trends
        self._centre, self._mean = points.mean(axis=0), float(values.mean())
        parts = self._parts(points, points)
        centred = values - self._mean
        fits = [
            (prior, _Fit(parts, centred, scales, factor * noises))
            for factor, prior in NOISE_PRIORS.items()
            for scales in choices
        ]
        _, self._fit = max(fits, key=lambda pair: pair[0] + pair[1].log_likelihood)

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Means and standard deviations of the values at points, noise left out."""
        across = self._across(points)
        variance = self._prior(points) - (across @ self._fit.inverse * across).sum(axis=1)
        return self._mean + across @ self._fit.weights, np.sqrt(np.maximum(variance, TINY))

    def differences(self, points: Array, other: Array) -> tuple[Array, Array]:
        """Means and standard deviations of how much higher the values at points are than that at another point.

        What is not known of both alike is in neither: points that hardly differ are known to be hardly different.
        """
        scales, there = self._fit.scales, other[None, :]
        less = self._across(points) - self._across(there)
        prior = self._prior(points) + self._prior(there) - 2 * _covariance(self._parts(points, there), scales)[:, 0]
        variance = prior - (less @ self._fit.inverse * less).sum(axis=1)
        return less @ self._fit.weights, np.sqrt(np.maximum(variance, TINY))

    def _across(self, points: Array) -> Array:
        return _covariance(self._parts(points, self._points), self._fit.scales)

    def _prior(self, points: Array) -> Array:
        """Variances of the values at points before anything was observed."""
        scales = self._fit.scales
        trends = (points - self._centre)[:, : self._num_trends]
        alone = points.shape[1] * scales.alone**2
        return np.asarray(scales.trend**2 * (trends**2).sum(axis=1) + alone + scales.together**2)

    def _parts(self, rows: Array, columns: Array) -> tuple[Array, Array, Array]:
        """Likeness of points in their trends, feature by feature, and in all features at once."""
        distances = np.abs(rows[:, None, :] - columns[None, :, :])
        here, there = ((points - self._centre)[:, : self._num_trends] for points in (rows, columns))
        return here @ there.T, np.exp(-distances).sum(axis=2), np.exp(-distances.sum(axis=2))


class _Fit:
    def __init__(self, parts: tuple[Array, Array, Array], values: Array, scales: Scales, noises: Array) -> None:
        self.scales = scales
        covariance = _covariance(parts, scales) + np.diag(noises**2)
        self.inverse = np.linalg.inv(covariance)
        self.weights = self.inverse @ values
        self.log_likelihood = float(-0.5 * values @ self.weights - 0.5 * np.linalg.slogdet(covariance)[1])


def _covariance(parts: tuple[Array, Array, Array], scales: Scales) -> Array:
    trend, alone, together = parts
    return np.asarray(scales.trend**2 * trend + scales.alone**2 * alone + scales.together**2 * together)
