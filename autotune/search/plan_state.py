"""The state of a pass through the plan: visited trials, the best trial, and the worth of further trials. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from autotune.search.bounds import Bounds
from autotune.search.history import FinishedTrial, History
from autotune.settings import CompileMode, Precision, Settings, Value
from autotune.space.search_space import SearchSpace

if TYPE_CHECKING:
    from autotune.search.memory_model import MemoryModel

AT_CEILING_RATIO = 0.95
"""Least share of the compute-only rate at which a trial's loader is not searched."""

LITTLE_WAIT = 0.03
"""Share of waiting time on an accelerator below which the loader is not searched, however rate and ceiling compare."""

HOPELESS_RATIO = 0.98
"""A change that left less than this share of the rate elsewhere is not tried again: changes act nearly
independently."""


TRAINED_BYTES = 8
"""Weight and gradient of a parameter in fp32, whatever the micro-batch; the optimizer's state comes on top."""

EARLY_BUILDS = (CompileMode.REDUCE_OVERHEAD, CompileMode.REGIONAL, CompileMode.DEFAULT)
"""Modes for the plan's compiled model, in order of preference."""

HALF = (Precision.BF16.value, Precision.FP16.value)
"""Formats of half the width."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanLimits:
    """The machine, as far as the plan needs it."""

    usable_cpus: float
    """Cores available to each process of the job, quotas included; above 0."""
    cap_bytes: int
    """Largest peak memory allowed for a trial."""
    num_loaders: int = 1
    """Loaders with workers of their own in each process, at least 1: all of them have `num_workers` workers."""
    fixed_bytes: float = 0.0
    """Least part of every peak that does not grow with the micro-batch: weights, gradients, optimizer state."""
    fixed_estimate_bytes: float | None = None
    """Estimate of that part from the probe; None where the probe shows too little."""
    reachable_bytes: float | None = None
    """Peak at which the allocator's limit ends a trial, below the cap; None = the cap."""
    has_bf16_instructions: bool = False
    """Whether the processor has instructions for bf16; counts for training on a CPU alone."""
    noise_ratio: float = 0.02
    """Relative noise of rates; a smaller difference is noise."""
    early_builds: tuple[CompileMode, ...] = EARLY_BUILDS
    """Modes in which the plan may try a compiled model; without time for a build, the other steps go on."""

    can_go_on: Callable[[Settings], bool] = lambda settings: True
    """In a search without time for new processes: returns whether the running process can change to settings."""

    def __post_init__(self) -> None:
        """Raises `ValueError` for impossible limits."""
        if self.usable_cpus <= 0 or self.cap_bytes < 1 or self.num_loaders < 1 or not 0 <= self.noise_ratio < 1:
            raise ValueError(f"impossible limits {self}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """Settings to try next, with the stage of the proposal."""

    settings: Settings
    stage: str
    expected_gain_ratio: float | None = None
    """Expected gain as a share of the best rate, less the risk of not fitting; None when unknown."""
    gain_ratio_per_minute: float | None = None
    """Expected gain of the next minute as a share of the best rate; None when unknown or time does not count."""


class NeedsTrial(Exception):  # noqa: N818 -- a signal to the plan, not an error
    """The plan cannot go on before these settings were tried."""

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate.stage)
        self.candidate = candidate


class PlanState:
    """One pass through the plan over the finished trials; the pass stops at the first missing trial.

    Every decision rests on trials visited by the pass, in the plan's own order. A pass over more trials therefore takes
    the same steps and only gets further, whatever was sampled meanwhile and whichever process continues, as long as the
    limits are the same.

    Args:
        history: Finished trials.
        space: The settings to search.
        limits: The machine.
    """

    def __init__(self, history: History, space: SearchSpace, limits: PlanLimits) -> None:
        self.space = space
        self.limits = limits
        self._history = history
        self.visited = History((), history.script_settings)
        """The trials visited so far."""
        self.best = history.script_settings
        """The fastest settings visited; the script's own before a feasible trial."""
        self.best_rate = 0.0

    # --- trials

    def measured(self, settings: Settings, stage: str, *, favour: float = 0.0) -> FinishedTrial:
        """The trial of these settings; the best moves to a faster trial.

        Args:
            settings: Canonical settings.
            stage: Reason for trying them.
            favour: Share of the best rate by which the trial may be slower and still become the best; below 0, by
                which the trial must be faster.

        Raises:
            NeedsTrial: When the settings were not tried yet.
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
        """The settings that compute fastest, even behind a slow loader; the best settings without compute-only rates.

        On an accelerator, enough workers may make these settings the fastest. A trial with any loader shows the
        compute.
        """
        return self._leading(self.visited.sound, self.best)

    @property
    def eager_lead(self) -> Settings:
        """The settings that compute fastest without a model compiled by us; the lead where the script compiles."""
        if self.space.script_settings.compile:
            return self.lead
        best = self.space.script_settings if self.best.compile else self.best
        return self._leading([trial for trial in self.visited.sound if not trial.settings.compile], best)

    def _leading(self, trials: Sequence[FinishedTrial], best: Settings) -> Settings:
        """The settings that compute fastest among trials; `best` unless a trial computes faster."""
        rated = [(self.bounds.compute_rate(trial.settings) or 0.0, trial) for trial in trials]
        highest = max((rate for rate, _ in rated), default=0.0)
        if highest <= (self.bounds.compute_rate(best) or 0.0):
            return best
        return next(trial.settings for rate, trial in rated if rate == highest)

    def consider(self, changes: Mapping[str, Value], stage: str, *, favour: float = 0.0) -> bool:
        """Tries the best settings with some parameters changed, unless refused, too large or pointless.

        Args:
            changes: Parameters with other values.
            stage: Reason for trying them.
            favour: As for `measured`.

        Returns:
            True when the best settings moved to the changed settings.
        """
        settings = self.changed(changes)
        if not self.is_open(settings) or self.is_pointless(settings):
            return False
        self.measured(settings, stage, favour=favour)
        return self.best == settings

    def climb(self, name: str, stage: str, *, steps: tuple[int, ...] = (1, -1)) -> None:
        """Moves to neighbouring values of a parameter while faster."""
        for step in steps:
            while True:
                value = self.neighbour(name, step)
                if value is None or not self.consider({name: value}, stage):
                    break

    def try_others(self, name: str, stage: str, *, favour: float = 0.0) -> None:
        """Tries every other value of a parameter; `favour` as for `measured`."""
        for value in self.choices(name):
            self.consider({name: value}, stage, favour=favour)

    # --- what is worth a trial

    def is_open(self, settings: Settings) -> bool:
        """True when these settings are new, allowed, and not known to exceed the cap."""
        if settings in self.visited or self.space.why_not(settings) is not None:
            return False
        return self.fits(settings)

    def fits(self, settings: Settings) -> bool:
        """True when these settings are likely to stay under the cap, or nothing is known."""
        return (self.memory.ruled_out(settings) or self.memory.unlikely(settings)) is None

    def is_pointless(self, settings: Settings) -> bool:
        """True when these settings, by the trials so far, cannot beat the best by more than the noise."""
        bound = self.bounds.upper_bound(settings)
        if bound is not None and bound < self.best_rate * (1 + self.limits.noise_ratio):
            return True
        return self._known_ratio(settings) < HOPELESS_RATIO

    def cannot_lead(self, settings: Settings, lead: Settings) -> bool:
        """True when the settings cannot become the lead: no loader keeps up, or the compute is no faster."""
        compute, most = self.bounds.compute_rate(lead), self.bounds.largest_loader_rate(self.limits.usable_cpus)
        if compute is not None and most is not None and compute > max(most, self.best_rate):
            return True
        known = self.bounds.compute_rate(settings)
        if known is not None and compute is not None and known <= compute:
            return True
        ratio = self.bounds.compute_ratio(lead, settings)
        return ratio is not None and ratio < 1 + self.limits.noise_ratio

    def _known_ratio(self, settings: Settings) -> float:
        """The largest ratio of rates seen elsewhere for the change from the best to these settings; 1 when unknown."""
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
        """True when the loader keeps up with a trial (default: the best), reaching `ratio` of its compute-only rate."""
        trial = trial or self.visited.get(self.best)
        if trial is None or trial.samples_per_second is None:
            return False
        wait = None if self.space.device_is_cpu else trial.data_wait_fraction
        return (wait is not None and wait < LITTLE_WAIT) or self._is_at_ceiling(trial, ratio)

    def _is_at_ceiling(self, trial: FinishedTrial, ratio: float) -> bool:
        """True when a trial reaches `ratio` of its compute-only rate."""
        ceiling, rate = self.bounds.compute_rate(trial.settings), trial.samples_per_second
        return ceiling is not None and rate is not None and rate >= ratio * ceiling

    @cached_property
    def bounds(self) -> Bounds:
        """Bounds of other settings' rates, from the visited trials."""
        return Bounds(self.visited, device_is_cpu=self.space.device_is_cpu)

    @cached_property
    def memory(self) -> MemoryModel:
        """Memory of other settings, from the visited trials."""
        from autotune.search.memory_model import MemoryModel  # numpy, for the search alone

        return MemoryModel(self.visited, self.space, self.limits.cap_bytes, self.limits.fixed_bytes)

    # --- the space around the best

    def changed(self, changes: Mapping[str, Value], settings: Settings | None = None) -> Settings:
        """Settings (default: the best) after all allowed changes; canonical.

        A parameter with its value outside the user's ranges goes to the nearest allowed value.
        """
        params: dict[str, Any] = dict(self.space.params(settings or self.best))
        params.update({name: value for name, value in changes.items() if value in self.choices(name)})
        return self.space.settings({name: self._nearest(name, value) for name, value in params.items()})

    def choices(self, name: str) -> tuple[Value, ...]:
        """Allowed values of a parameter, numbers in rising order; empty for a parameter outside the space."""
        return ordered(self.space.allowed.get(name, ()))

    def neighbour(self, name: str, step: int) -> Value | None:
        """The allowed value `step` places from the best settings' own; None beyond the ends."""
        values = self.choices(name)
        if not values:
            return None
        index = values.index(self._nearest(name, self.space.params(self.best)[name])) + step
        return values[index] if 0 <= index < len(values) else None

    def at_most(self, name: str, number: float) -> int:
        """The largest allowed whole number not above `number`; the smallest value if all are above."""
        values = [int(value) for value in self.choices(name)]
        return next((value for value in reversed(values) if value <= number), values[0])

    def at_least(self, name: str, number: float) -> int:
        """The smallest allowed whole number not below `number`; the largest value if all are below."""
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
    """Values of a parameter: numbers in rising order, words and switches unchanged."""
    if any(isinstance(value, (str, bool)) for value in values):
        return values
    return tuple(sorted(values))
