"""The rate that settings cannot exceed, from what other trials measured: it prunes, it is never reported. Pure.

Every trial measures its compute-only rate, so one trial speaks for all settings that compute the same. Measured with
real scripts, the rate stayed below the smaller of the loader's and the compute-only rate in all cases but two, by under
1 %; as a prediction that minimum is worthless where loader and training share cores.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from statistics import fmean

from autotune.search.history import FinishedTrial, History
from autotune.settings import DEFAULT_PREFETCH_FACTOR, Settings

LOADER_BOUND_WAIT = 0.15
"""A trial on an accelerator that waits for data this share of its time shows what its loader can do."""


class Bounds:
    """Upper bounds of rates.

    Args:
        history: Finished trials.
        device_is_cpu: Loader and compute share the cores; then a slow trial does not tell what the loader can do.
    """

    def __init__(self, history: History, *, device_is_cpu: bool) -> None:
        compute: defaultdict[Settings, list[float]] = defaultdict(list)
        self._loader: dict[Settings, float] = {}
        self._load_s: list[float] = []
        for trial in history.trials:
            if trial.compute_samples_per_second is not None:
                compute[compute_part(trial.settings)].append(trial.compute_samples_per_second)
        self._compute = {part: fmean(rates) for part, rates in compute.items()}
        for trial in history.feasible:
            self._learn_loader(trial, device_is_cpu)

    def _learn_loader(self, trial: FinishedTrial, device_is_cpu: bool) -> None:
        rate, compute = trial.samples_per_second, self.compute_rate(trial.settings)
        if rate is None or compute is None:
            return
        if trial.settings.num_workers == 0:
            self._load_s.append(max(0.0, 1 / rate - 1 / compute))
        elif not device_is_cpu and (trial.data_wait_fraction or 0.0) > LOADER_BOUND_WAIT:
            part = loader_part(trial.settings)
            self._loader[part] = max(self._loader.get(part, 0.0), rate)

    def compute_rate(self, settings: Settings) -> float | None:
        """Compute-only rate of these settings, the mean of all trials that compute the same; None if there is none."""
        return self._compute.get(compute_part(settings))

    @property
    def load_s(self) -> float | None:
        """Seconds that the training process takes to load one sample by itself; None without a trial that did."""
        return min(self._load_s, default=None)

    def upper_bound(self, settings: Settings) -> float | None:
        """Samples per second that these settings cannot exceed but by noise; None where nothing is known of them."""
        compute, load_s = self.compute_rate(settings), self.load_s
        known = [compute, self._loader.get(loader_part(settings))]
        if settings.num_workers == 0 and compute is not None and load_s is not None:
            known.append(1 / (1 / compute + load_s))
        return min((rate for rate in known if rate is not None), default=None)


def compute_part(settings: Settings) -> Settings:
    """The settings without those that a step on a cached batch does not feel."""
    return replace(
        settings,
        num_workers=0,
        prefetch_factor=DEFAULT_PREFETCH_FACTOR,
        persistent_workers=False,
        pin_memory=False,
        memory_fraction=1.0,
    )


def loader_part(settings: Settings) -> Settings:
    """The settings that the loader may feel; everything else at its default."""
    return Settings(
        num_workers=settings.num_workers,
        prefetch_factor=settings.prefetch_factor,
        persistent_workers=settings.persistent_workers,
        pin_memory=settings.pin_memory,
        knobs=settings.knobs,
    )
