"""The plan's position: what it has seen so far, the best of it, and what is not worth a trial. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from autotune.search.bounds import Bounds
from autotune.search.history import FinishedTrial, History
from autotune.search.memory_model import MemoryModel
from autotune.settings import Precision, Settings
from autotune.space.search_space import SearchSpace, Value

AT_CEILING_RATIO = 0.95
"""From this share of its compute-only rate on, a trial's loader is not searched."""

LITTLE_WAIT = 0.03
"""Nor is it on an accelerator that waits for data less than this share of its time, however the two rates compare."""

HOPELESS_RATIO = 0.98
"""A change that left less than this of the rate elsewhere is not tried again: changes act nearly independently."""


TRAINED_BYTES = 8
"""Weight and gradient of a parameter in fp32, whatever the micro-batch; the optimizer's state comes on top."""

HALF = (Precision.BF16.value, Precision.FP16.value)
"""Formats of half the width."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanLimits:
    """What the plan must know of the machine."""

    usable_cpus: float
    """Cores that the job may use, quotas counted; above 0."""
    cap_bytes: int
    """Peak memory that a trial may have."""
    fixed_bytes: float = 0.0
    """At least so much of every peak does not grow with the micro-batch: weights, gradients, the optimizer's state."""
    noise_ratio: float = 0.02
    """Differences of rates below this share are noise."""

    def __post_init__(self) -> None:
        """Refuses impossible machines."""
        if self.usable_cpus <= 0 or self.cap_bytes < 1 or not 0 <= self.noise_ratio < 1:
            raise ValueError(f"impossible limits {self}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """Settings to try next, and why."""

    settings: Settings
    stage: str
    expected_gain_ratio: float | None = None
    """By how much of the best rate they are expected to be faster, less the risk that they do not fit; None where that
    is not known."""


class NeedsTrial(Exception):  # noqa: N818 -- a signal to the plan, not an error
    """The walk cannot go on before these settings were tried."""

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate.stage)
        self.candidate = candidate


class PlanState:
    """One pass through the plan over the trials that there are; it stops at the first that is missing.

    Every decision rests on trials that this walk has visited, in its own order. So a walk over more trials takes the
    same steps and only gets further, whatever was sampled meanwhile and whichever process goes on with it.

    Args:
        history: Finished trials.
        space: What may be tried.
        limits: The machine.
    """

    def __init__(self, history: History, space: SearchSpace, limits: PlanLimits) -> None:
        self.space = space
        self.limits = limits
        self._history = history
        self.visited = History((), history.script_settings)
        """The trials that this walk has come by."""
        self.best = history.script_settings
        """The fastest settings visited; the script's own while none was feasible."""
        self.best_rate = 0.0

    # --- trials

    def measured(self, settings: Settings, stage: str, *, favour: float = 0.0) -> FinishedTrial:
        """The trial of these settings; the best moves there when it is faster.

        Args:
            settings: Canonical.
            stage: Why they are tried.
            favour: Share of the best rate by which it may also be slower: a tie goes to what usually helps.

        Raises:
            NeedsTrial: They were not tried yet.
        """
        trial = self._history.get(settings)
        if trial is None:
            raise NeedsTrial(Candidate(settings=settings, stage=stage))
        self.visited = self.visited.with_trials([trial])
        for name in ("bounds", "memory"):
            self.__dict__.pop(name, None)
        rate = self.visited.rate(settings)
        if rate is not None and rate > self.best_rate * (1 - favour):
            self.best, self.best_rate = settings, rate
        return trial

    @property
    def lead(self) -> Settings:
        """The settings that compute fastest, whether or not their loader lets them show it; the best without any.

        On an accelerator they may be faster than the best as soon as they are fed, and their compute-only rate tells
        so in a trial of any loader.
        """
        rated = [(self.bounds.compute_rate(trial.settings) or 0.0, trial) for trial in self.visited.sound]
        highest = max((rate for rate, _ in rated), default=0.0)
        if highest <= (self.bounds.compute_rate(self.best) or 0.0):
            return self.best
        return next(trial.settings for rate, trial in rated if rate == highest)

    def consider(self, changes: Mapping[str, Value], stage: str) -> bool:
        """Tries the best settings with some parameters changed, unless that is refused, too large or pointless.

        Returns:
            Whether the best settings moved there.
        """
        settings = self.changed(changes)
        if not self.is_open(settings) or self.is_pointless(settings):
            return False
        self.measured(settings, stage)
        return self.best == settings

    def climb(self, name: str, stage: str, *, steps: tuple[int, ...] = (1, -1)) -> None:
        """Steps to the neighbouring values of one parameter for as long as that is faster."""
        for step in steps:
            while True:
                value = self.neighbour(name, step)
                if value is None or not self.consider({name: value}, stage):
                    break

    def try_others(self, name: str, stage: str) -> None:
        """Tries every other value of one parameter."""
        for value in self.choices(name):
            self.consider({name: value}, stage)

    # --- what is worth a trial

    def is_open(self, settings: Settings) -> bool:
        """Whether these settings are new, allowed, and nothing speaks against their staying under the cap."""
        if settings in self.visited or self.space.why_not(settings) is not None:
            return False
        return self.fits(settings)

    def fits(self, settings: Settings) -> bool:
        """Whether these settings are likely to stay under the cap; the unknown are given the benefit of the doubt."""
        return (self.memory.ruled_out(settings) or self.memory.unlikely(settings)) is None

    def is_pointless(self, settings: Settings) -> bool:
        """Whether these settings cannot be faster than the best by more than the noise, as far as the trials tell."""
        bound = self.bounds.upper_bound(settings)
        if bound is not None and bound < self.best_rate * (1 + self.limits.noise_ratio):
            return True
        return self._known_ratio(settings) < HOPELESS_RATIO

    def cannot_lead(self, settings: Settings) -> bool:
        """Whether faster compute would be of no use, since no loader keeps up with it, or was slower elsewhere."""
        compute, most = self.bounds.compute_rate(self.lead), self.bounds.most_loaded(self.limits.usable_cpus)
        if compute is not None and most is not None and compute > max(most, self.best_rate):
            return True
        known = self.bounds.compute_rate(settings)
        if known is not None and compute is not None and known <= compute:
            return True
        ratio = self.bounds.compute_ratio(self.lead, settings)
        return ratio is not None and ratio < 1 + self.limits.noise_ratio

    def _known_ratio(self, settings: Settings) -> float:
        """What the change from the best to these settings left of the rate elsewhere, at its best; 1 where unknown."""
        own, other = self.space.params(self.best), self.space.params(settings)
        changes = {name: value for name, value in other.items() if value != own[name]}
        ratios = []
        for trial in self.visited.feasible:
            params = self.space.params(trial.settings)
            if all(params[name] == own[name] for name in changes):
                changed = self.visited.get(self.space.settings(params | changes))
                if changed is not None and changed.samples_per_second and trial.samples_per_second:
                    ratios.append(changed.samples_per_second / trial.samples_per_second)
        return max(ratios, default=1.0)

    def is_fed(self, trial: FinishedTrial | None = None, *, ratio: float = AT_CEILING_RATIO) -> bool:
        """Whether the loader keeps up with a trial, by default the best: it reaches this share of its compute rate."""
        trial = trial or self.visited.get(self.best)
        if trial is None or trial.samples_per_second is None:
            return False
        wait = None if self.space.device_is_cpu else trial.data_wait_fraction
        return (wait is not None and wait < LITTLE_WAIT) or self._is_at_ceiling(trial, ratio)

    def _is_at_ceiling(self, trial: FinishedTrial, ratio: float) -> bool:
        """Whether a trial reaches this share of its compute-only rate."""
        ceiling, rate = self.bounds.compute_rate(trial.settings), trial.samples_per_second
        return ceiling is not None and rate is not None and rate >= ratio * ceiling

    @cached_property
    def bounds(self) -> Bounds:
        """What the visited trials say about the rates of others."""
        return Bounds(self.visited, device_is_cpu=self.space.device_is_cpu)

    @cached_property
    def memory(self) -> MemoryModel:
        """What the visited trials say about the memory of others."""
        return MemoryModel(self.visited, self.space, self.limits.cap_bytes, self.limits.fixed_bytes)

    # --- the space around the best

    def changed(self, changes: Mapping[str, Value], settings: Settings | None = None) -> Settings:
        """Settings, by default the best, with the allowed ones of these changes; canonical.

        Where the user narrowed a parameter past the script's own value, that goes to the nearest one allowed.
        """
        params: dict[str, Any] = dict(self.space.params(settings or self.best))
        params.update({name: value for name, value in changes.items() if value in self.choices(name)})
        return self.space.settings({name: self._nearest(name, value) for name, value in params.items()})

    def choices(self, name: str) -> tuple[Value, ...]:
        """Allowed values of a parameter, numbers in rising order; empty where the space does not have it."""
        return ordered(self.space.allowed.get(name, ()))

    def neighbour(self, name: str, step: int) -> Value | None:
        """The allowed value so many places from the best settings' own; None where there is none."""
        values = self.choices(name)
        if not values:
            return None
        index = values.index(self._nearest(name, self.space.params(self.best)[name])) + step
        return values[index] if 0 <= index < len(values) else None

    def at_most(self, name: str, number: float) -> int:
        """The largest allowed value of a parameter of whole numbers not above this; the smallest if all are."""
        values = [int(value) for value in self.choices(name)]
        return next((value for value in reversed(values) if value <= number), values[0])

    def at_least(self, name: str, number: float) -> int:
        """The smallest allowed value of a parameter of whole numbers not below this; the largest if all are."""
        values = [int(value) for value in self.choices(name)]
        return next((value for value in values if value >= number), values[-1])

    def _nearest(self, name: str, value: Value) -> Value:
        values = self.choices(name)
        if value in values:
            return value
        if isinstance(value, str) or isinstance(values[0], str):
            return values[0]
        return min(values, key=lambda choice: abs(float(choice) - float(value)))


def ordered(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Values of a parameter, numbers in rising order, words and switches as they stand."""
    if any(isinstance(value, (str, bool)) for value in values):
        return values
    return tuple(sorted(values))
