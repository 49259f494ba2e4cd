"""Upper bounds of untried settings' rates, from finished trials. The bounds prune; they are never reported. Pure.

Every trial measures a compute-only rate, valid for all settings with the same compute. With real scripts, the measured
rate stayed below the smaller of the loader's rate and the compute-only rate in all cases but two, each less than 1 %
above. As a prediction the minimum is worthless when loader and training share cores.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from functools import lru_cache
from statistics import fmean
from typing import Any

from autotune.search.history import FinishedTrial, History
from autotune.settings import SETTINGS, Settings
from autotune.settings.setting import Effect

LOADER_BOUND_WAIT = 0.15
"""Least share of waiting time at which an accelerator's trial shows the loader's rate."""

NUM_REMEMBERED = 4096
"""Size of the cache of settings' parts: a plan asks for every trial's parts again and again."""


_OF_LOADER = tuple(setting.name for setting in SETTINGS if setting.effect is Effect.LOADER)
_NOT_OF_COMPUTE: dict[str, Any] = {
    setting.name: setting.default for setting in SETTINGS if setting.effect is not Effect.COMPUTE
}


class Bounds:
    """Upper bounds of rates.

    Args:
        history: Finished trials.
        device_is_cpu: True when loader and compute share the cores, so that a slow trial says nothing about the loader.
    """

    def __init__(self, history: History, *, device_is_cpu: bool) -> None:
        compute: defaultdict[Settings, list[float]] = defaultdict(list)
        self._loader: dict[Settings, float] = {}
        self._load_s: list[float] = []
        self._rate_of_workers: dict[int, float] = {}
        for trial in history.trials:
            if trial.compute_samples_per_second is not None:
                compute[compute_part(trial.settings)].append(trial.compute_samples_per_second)
        self._compute = {part: fmean(rates) for part, rates in compute.items()}
        for trial in history.feasible:
            self._learn_loader(trial, device_is_cpu)

    def _learn_loader(self, trial: FinishedTrial, device_is_cpu: bool) -> None:
        rate, compute = trial.samples_per_second, self.compute_rate(trial.settings)
        if rate is None or compute is None or not trial.settings.is_of_torch:
            return
        if trial.settings.num_workers == 0:
            self._load_s.append(max(0.0, 1 / rate - 1 / compute))
        elif not device_is_cpu and (trial.data_wait_fraction or 0.0) > LOADER_BOUND_WAIT:
            part = loader_part(trial.settings)
            self._loader[part] = max(self._loader.get(part, 0.0), rate)
            workers = trial.settings.num_workers
            self._rate_of_workers[workers] = max(self._rate_of_workers.get(workers, 0.0), rate)

    def compute_rate(self, settings: Settings) -> float | None:
        """Compute-only rate of these settings: the mean over all trials with the same compute; None without a trial."""
        return self._compute.get(compute_part(settings))

    def loader_rate(self, settings: Settings) -> float | None:
        """Highest rate seen from the loader of these settings, in samples per second; None when unknown."""
        return self._loader.get(loader_part(settings))

    @property
    def load_s(self) -> float | None:
        """Seconds to load a sample in the training process itself; None without a trial without workers."""
        return min(self._load_s, default=None)

    def largest_loader_rate(self, usable_cpus: float) -> float | None:
        """Largest possible rate of a loader with a worker on every core, in samples per second; None when unknown.

        The training process's cores are not subtracted, and hyperthreads count in full: the rate only rules out.
        """
        known = [usable_cpus * rate / max(workers, 1) for workers, rate in self._rate_of_workers.items()]
        if self.load_s:
            known.append(usable_cpus / self.load_s)
        return max(known, default=None)

    def compute_ratio(self, own: Settings, other: Settings) -> float | None:
        """The largest ratio of compute-only rates seen elsewhere for the change from `own` to `other`, or None."""
        changes = {name: there for name, (_, there) in compute_part(own).differences(compute_part(other)).items()}
        if not changes or any("." in name for name in changes):
            return None
        ratios = []
        for part, rate in self._compute.items():
            if all(getattr(part, name) == getattr(own, name) for name in changes):
                changed = self._compute.get(replace(part, **changes))
                if changed is not None:
                    ratios.append(changed / rate)
        return max(ratios, default=None)

    def batch_gain(self, settings: Settings, micro_batch: int) -> float | None:
        """Factor by which another micro-batch would change the compute-only rate; None before two were measured.

        The time per sample has a part paid once per micro-batch and a part paid per sample: a straight line in 1 /
        micro-batch, through the two largest measured, each at its fastest accumulation. If two micro-batches were
        measured only with different settings, the largest gain among those settings counts.
        """
        if not settings.batch_size:
            return None
        lines: defaultdict[Settings, dict[float, float]] = defaultdict(dict)
        for part, rate in self._compute.items():
            if part.batch_size:
                line, place = lines[_without_batch(part)], 1 / part.batch_size
                line[place] = min(line.get(place, math.inf), 1 / rate)
        gains = {
            part: _gain(sorted(points.items())[:2], 1 / settings.batch_size, 1 / micro_batch)
            for part, points in lines.items()
            if len(points) > 1
        }
        own = gains.get(_without_batch(compute_part(settings)))
        return own if own is not None else max(gains.values(), default=None)

    def upper_bound(self, settings: Settings) -> float | None:
        """Upper bound of the rate of these settings, in samples per second, up to noise; None when nothing is known."""
        compute, load_s = self.compute_rate(settings), self.load_s
        known = [compute, self.loader_rate(settings)]
        if settings.num_workers == 0 and settings.is_of_torch and compute is not None and load_s is not None:
            known.append(1 / (1 / compute + load_s))
        return min((rate for rate in known if rate is not None), default=None)


@lru_cache(maxsize=NUM_REMEMBERED)
def compute_part(settings: Settings) -> Settings:
    """The settings felt by a step on a cached batch; everything else at the default."""
    return replace(settings, **_NOT_OF_COMPUTE)


@lru_cache(maxsize=NUM_REMEMBERED)
def loader_part(settings: Settings) -> Settings:
    """The settings with a possible effect on the loader; everything else at the default."""
    return Settings(knobs=settings.knobs, **{name: getattr(settings, name) for name in _OF_LOADER})


@lru_cache(maxsize=NUM_REMEMBERED)
def _without_batch(part: Settings) -> Settings:
    return replace(part, batch_size=None, grad_accum_steps=1)


def _gain(points: list[tuple[float, float]], here: float, there: float) -> float:
    """Ratio of the times per sample at two places on the line through two points at different places."""
    (near, near_s), (far, far_s) = points
    slope = max(0.0, (far_s - near_s) / (far - near))
    return (near_s + slope * (here - near)) / max(near_s + slope * (there - near), 1e-12)
