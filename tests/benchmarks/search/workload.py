"""One simulated training job: what is true of every setting, and what a noisy trial of it would report."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from autotune.model.outcome import Outcome
from autotune.model.result import Measurement, TrialResult
from autotune.settings import GROUP_OF_FIELD, Settings
from autotune.space.search_space import SPLIT, SearchSpace
from tests.benchmarks.search import rates
from tests.benchmarks.search.problem import WITHIN

NOISE_RATIO = 0.025
"""Standard deviation of a rate from trial to trial."""
OUTLIER_SHARE = 0.03
OUTLIER_RATIO = 0.9
"""So many trials run so much slower, because something else ran on the machine."""
RACE_MARGIN = 0.97
CONVERGED_HALF_WIDTH = 0.05
"""As in the real trials: what is narrower has converged, and is never raced out by its window."""


@dataclass
class Workload:
    """One job on one machine."""

    name: str
    space: SearchSpace
    usable_cpus: int
    """What the machine says."""
    cores: float
    """What it gives."""
    cap_bytes: int
    costs: dict[str, float]
    noise: float = NOISE_RATIO
    outlier_share: float = OUTLIER_SHARE

    @property
    def fixed_bytes(self) -> float:
        """What the probe knows: weights and gradients, less than all that does not grow with the micro-batch."""
        return 0.4 * self.costs["model_bytes"]

    @property
    def fixed_estimate_bytes(self) -> float | None:
        """What the probe estimates on an accelerator: the model, without the optimizer's work."""
        return None if self.is_cpu else self.costs["model_bytes"]

    @property
    def is_cpu(self) -> bool:
        return self.space.device_is_cpu

    # --- what is true of a setting

    def compute_rate(self, settings: Any) -> float:
        """Samples per second without the loader."""
        if self.is_cpu:
            return 1 / rates.cpu_compute_s(self.costs, settings, self.cores)
        return 1 / rates.accelerator_compute_s(self.costs, settings)

    def rate(self, settings: Any) -> float:
        """Samples per second of the whole job."""
        whole = rates.cpu_rate if self.is_cpu else rates.accelerator_rate
        return whole(self.costs, settings, self.cores)

    def peak_bytes(self, settings: Any) -> float:
        return rates.peak_bytes(self.costs, settings, is_cpu=self.is_cpu, sample_bytes=self.space.sample_bytes)

    def is_feasible(self, settings: Any) -> bool:
        return self.peak_bytes(settings) <= self.cap_bytes

    def data_wait_fraction(self, settings: Any) -> float:
        """Share of the time inside the loader's `next()`; where cores are shared, most of the cost is elsewhere."""
        if not self.is_cpu:
            step, wait = rates.accelerator_step(self.costs, settings, self.cores)
            return wait / step
        stalled = max(0.0, 1 - self.rate(settings) / self.compute_rate(settings))
        return stalled if settings.num_workers == 0 else 0.3 * stalled

    # --- the whole grid

    def grid(self) -> Iterator[Any]:
        """Everything that may be tried, as plain attributes: real Settings check themselves, which takes a while."""
        names = self.space.searched
        own = {name: getattr(self.space.script_settings, name) for name in GROUP_OF_FIELD}
        for row in itertools.product(*(self.space.allowed[name] for name in names)):
            values = {**own, **dict(zip(names, row, strict=True))}
            if SPLIT in values:
                size = self.space.divisors[values.pop(SPLIT)]
                batch = self.space.batch_per_device or size
                values |= {"batch_size": size, "grad_accum_steps": batch // size}
            yield SimpleNamespace(**values)

    @cached_property
    def best(self) -> Settings:
        """The fastest of all settings under the cap."""
        best_rate, best = 0.0, None
        for point in self.grid():
            if self.is_feasible(point) and self.compute_rate(point) > best_rate and self.rate(point) > best_rate:
                best_rate, best = self.rate(point), point
        assert best is not None  # the script's own settings fit, or smaller ones do
        return Settings(**vars(best)).canonical(device_is_cpu=self.is_cpu)

    @cached_property
    def best_rate(self) -> float:
        return self.rate(self.best)

    def solved(self) -> Workload:
        """The same job of somebody whose own settings are the best already."""
        return replace(self, name=f"{self.name} solved", space=replace(self.space, script_settings=self.best))

    def regret(self, settings: Settings) -> float:
        """Share of the best rate that these settings give away; 1 where they need more than the cap."""
        return 1 - self.rate(settings) / self.best_rate if self.is_feasible(settings) else 1.0

    def is_found(self, settings: Settings) -> bool:
        """Whether these settings are within two percent of the best."""
        return self.regret(settings) <= WITHIN

    # --- one trial

    def run(self, settings: Settings, seed: int = 0, incumbent: float | None = None) -> TrialResult:
        """What a trial reports; the same settings and seed report the same.

        As the real runner does: a trial over the cap is ended at it, so that only a bound of its need is known, or not
        even that; one that cannot be the fastest is ended early, with an upper bound of its rate.
        """
        plain = Settings().to_dict()
        changed = {name: value for name, value in settings.to_dict().items() if value != plain.get(name)}
        # Settings left alone are left out: a new setting must not draw the noise of every workload anew.
        rng = random.Random(f"{self.name} {seed} {sorted(changed.items(), key=str)}")
        peak = self.peak_bytes(settings)
        if peak > self.cap_bytes:
            return self._too_large(peak, rng)
        # Readings of host memory are seconds apart and miss the very peak; an allocator reserves in whole blocks.
        reading = peak * (rng.uniform(0.97, 1.0) if self.is_cpu else rng.uniform(1.0, 1.01))
        measurement, is_raced = self._measurement(settings, rng, incumbent)
        return TrialResult(
            outcome=Outcome.RACED_OUT if is_raced else Outcome.OK,
            measurement=measurement,
            peak_memory_bytes=min(self.cap_bytes, round(reading)),
        )

    def _too_large(self, peak: float, rng: random.Random) -> TrialResult:
        if not self.is_cpu:  # refused by the allocator; what it held by then, where that was seen
            seen = round(self.cap_bytes * rng.uniform(0.7, 1.0)) if rng.random() < 0.7 else None
            return TrialResult(outcome=Outcome.OUT_OF_MEMORY, reason="refused", peak_memory_bytes=seen)
        if rng.random() < 0.15:  # by the kernel, before it was seen
            return TrialResult(outcome=Outcome.OUT_OF_MEMORY, reason="killed")
        seen = round(min(peak, self.cap_bytes * rng.uniform(1.001, 1.2)))
        return TrialResult(outcome=Outcome.OVER_CAP, reason="ended", peak_memory_bytes=seen)

    def _measurement(self, settings: Settings, rng: random.Random, incumbent: float | None) -> tuple[Measurement, bool]:
        """The rate and its interval, and whether the trial was ended early."""
        compute = self.compute_rate(settings) * rng.lognormvariate(0, 0.6 * self.noise)
        fastest = compute * rng.uniform(1.0, 1.03)
        rate = self.rate(settings) * rng.lognormvariate(0, self.noise)
        rate *= OUTLIER_RATIO if rng.random() < self.outlier_share else 1.0
        half_width = min(0.2, 0.03 * rng.lognormvariate(0, 0.6))
        wait = min(1.0, max(0.0, self.data_wait_fraction(settings) * rng.lognormvariate(0, 0.1)))
        least = RACE_MARGIN * (incumbent or 0.0)
        if fastest < least:
            return _measured(fastest, 0.98 * min(compute, fastest), 1.02 * fastest, 0.0, compute, num_blocks=0), True
        low, high = rate * (1 - half_width), rate * (1 + half_width)
        is_raced = half_width > CONVERGED_HALF_WIDTH and rate * (1 + 1.25 * half_width) < least
        return _measured(rate, low, high, wait, compute, num_blocks=8), is_raced


def _measured(rate: float, low: float, high: float, wait: float, compute: float, *, num_blocks: int) -> Measurement:
    return Measurement(
        samples_per_second=rate,
        low=low,
        high=high,
        is_converged=num_blocks > 0,
        is_nonstationary=False,
        is_primed=False,
        num_blocks=num_blocks,
        window_s=2.0 if num_blocks else 0.0,
        data_wait_fraction=wait,
        compute_samples_per_second=compute,
    )
