"""How long a loader's workers took for their batches: predicts waits that a short window did not see."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildTimes:
    """The batches finished by a loader's workers during some time; impossible values raise `ValueError`."""

    num_workers: int
    """Number of workers of the loader, at least 1."""
    prefetch_factor: int
    """Batches that each worker may have outstanding, including the batch under construction; at least 1."""
    num_finished: int
    """Batches finished by all workers, >= 0."""
    total_s: float
    """Sum of the batches' build times, from beginning to end; >= 0."""
    total_squared_s2: float
    """Sum of the squared build times, in seconds squared; >= 0."""

    def __post_init__(self) -> None:
        if self.num_workers < 1 or self.prefetch_factor < 1 or self.num_finished < 0:
            raise ValueError(
                f"build times need num_workers and prefetch_factor >= 1 and num_finished >= 0, not "
                f"{self.num_workers!r}, {self.prefetch_factor!r} and {self.num_finished!r}"
            )
        if not (0 <= self.total_s < math.inf and 0 <= self.total_squared_s2 < math.inf):
            raise ValueError(
                f"sums of build times must be finite and not negative, not {self.total_s!r} "
                f"and {self.total_squared_s2!r}"
            )

    @property
    def mean_s(self) -> float:
        """Mean build time of a batch; 0 when none was finished."""
        return self.total_s / self.num_finished if self.num_finished else 0.0

    @property
    def relative_variance(self) -> float:
        """Variance of the build times over the square of their mean; 0 (unknown) for fewer than 2 batches."""
        if self.num_finished < 2 or self.total_s == 0:
            return 0.0
        squares = self.total_squared_s2 - self.total_s * self.mean_s
        return max(0.0, squares) / (self.num_finished - 1) / self.mean_s**2

    def since(self, earlier: BuildTimes) -> BuildTimes:
        """The batches finished after an earlier reading of the same workers."""
        return BuildTimes(
            num_workers=self.num_workers,
            prefetch_factor=self.prefetch_factor,
            num_finished=max(0, self.num_finished - earlier.num_finished),
            total_s=max(0.0, self.total_s - earlier.total_s),
            total_squared_s2=max(0.0, self.total_squared_s2 - earlier.total_squared_s2),
        )

    def plus(self, later: BuildTimes) -> BuildTimes:
        """The batches finished in this time and in a later one together."""
        return BuildTimes(
            num_workers=self.num_workers,
            prefetch_factor=self.prefetch_factor,
            num_finished=self.num_finished + later.num_finished,
            total_s=self.total_s + later.total_s,
            total_squared_s2=self.total_squared_s2 + later.total_squared_s2,
        )
