"""The finished trials of a study, by settings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import geometric_mean

from autotune.model.outcome import Outcome
from autotune.settings import Settings

MAX_INFORMATIVE = 200
"""Largest history used whole for a proposal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedTrial:
    """A finished trial as the search knows it."""

    number: int
    """Optuna's trial number."""
    settings: Settings
    """Settings in canonical form."""
    stage: str
    outcome: Outcome
    samples_per_second: float | None = None
    """Rate of a complete trial, upper bound of a raced-out trial; None for every other ending."""
    num_runs: int = 1
    """Runs behind the rate: the trial, and finals of the same settings."""
    peak_memory_bytes: int | None = None
    """Peak memory; for a trial over the cap, a lower bound of the need."""
    compute_samples_per_second: float | None = None
    """Rate without the loader, on one cached batch; known for raced-out trials too."""
    data_wait_fraction: float | None = None
    kernel_search_s: float = 0.0
    """Time left out of the rate, because cuDNN searched kernels for new sizes of the model's inputs, in seconds. It
    contains the steps on batches that workers built meanwhile."""
    device_utilization: float | None = None
    """Share of the time in which the device worked, by its driver; None on a CPU, or without an answer."""
    half_width_ratio: float | None = None
    """Half of the 95 % interval as a share of the rate."""
    expected_gain_ratio: float | None = None
    """Expected gain when the trial was chosen, as a share of the best rate; None if unknown or not the reason for the
    choice."""
    is_near_cap: bool = False
    """True when the allocator thrashed at the cap."""
    lacks_host_memory: bool = False
    """True when host memory, not device memory, was too small."""
    is_beside_load: bool = False
    """True when other programs kept cores busy during the trial."""
    is_disturbed: bool = False
    """True when anything beside the settings may have changed the rate."""
    reason: str = ""
    """Reason for the ending, as one sentence, with the place in the code if known."""
    missed: tuple[str, ...] = ()
    """Names of requested settings that were not in force."""
    is_inconclusive: bool = False
    """True when the trial's failure says nothing about its settings."""

    @property
    def is_feasible(self) -> bool:
        """True when the trial was measured in full, under the cap."""
        return self.outcome is Outcome.OK and self.samples_per_second is not None

    def with_runs(self, rates: Sequence[float]) -> FinishedTrial:
        """The trial with the geometric mean of its rate and the rates of further runs, in samples per second."""
        if not self.is_feasible or not rates:
            return self
        rate = geometric_mean([self.samples_per_second or 0.0, *rates])
        return replace(self, samples_per_second=rate, num_runs=1 + len(rates))


class History:
    """Finished trials by settings; of two attempts at the same settings the later counts.

    Args:
        trials: Finished trials with canonical settings, in any order.
        script_settings: The script's own settings, canonical.
        decided_until: Number of the last trial before the latest finals; -1 without finals.
    """

    def __init__(self, trials: Iterable[FinishedTrial], script_settings: Settings, *, decided_until: int = -1) -> None:
        self.decided_until = decided_until
        self._by_settings: dict[Settings, FinishedTrial] = {}
        for trial in sorted(trials, key=lambda trial: trial.number):
            self._by_settings[trial.settings] = trial
        self.script_settings = script_settings

    def __len__(self) -> int:
        return len(self._by_settings)

    def __contains__(self, settings: Settings) -> bool:
        return settings in self._by_settings

    @property
    def trials(self) -> tuple[FinishedTrial, ...]:
        """The attempts that count, in the order of their numbers."""
        return tuple(sorted(self._by_settings.values(), key=lambda trial: trial.number))

    def get(self, settings: Settings) -> FinishedTrial | None:
        """The trial of these canonical settings, or None."""
        return self._by_settings.get(settings)

    def rate(self, settings: Settings) -> float | None:
        """Samples per second of a feasible trial of these settings, or None."""
        trial = self.get(settings)
        return trial.samples_per_second if trial is not None and trial.is_feasible else None

    @property
    def feasible(self) -> tuple[FinishedTrial, ...]:
        """Trials measured in full under the cap, the fastest first."""
        found = [trial for trial in self._by_settings.values() if trial.is_feasible]
        return tuple(sorted(found, key=lambda trial: (-(trial.samples_per_second or 0.0), trial.number)))

    @property
    def sound(self) -> tuple[FinishedTrial, ...]:
        """Trials under the cap with a rate or an upper bound, in the order of their numbers."""
        return tuple(trial for trial in self.trials if trial.outcome.is_complete)

    @property
    def best(self) -> FinishedTrial | None:
        """The fastest feasible trial."""
        return next(iter(self.feasible), None)

    @property
    def baseline(self) -> FinishedTrial | None:
        """The trial of the script's own settings."""
        return self.get(self.script_settings)

    @cached_property
    def informative(self) -> History:
        """The most informative trials, for a proposal at constant cost; all trials while they are few.

        Of thousands: the fastest by rate and by compute, the latest, the smallest over the cap, and the baseline.
        """
        if len(self) <= MAX_INFORMATIVE:
            return self
        trials = self.trials
        rated = sorted(self.sound, key=lambda trial: -(trial.compute_samples_per_second or 0.0))
        failed = sorted(
            (trial for trial in trials if trial.outcome.is_infeasible),
            key=lambda trial: (trial.settings.batch_size or 1, trial.settings.num_workers, trial.number),
        )
        share = MAX_INFORMATIVE // 5
        chosen = [*self.feasible[: 2 * share], *rated[:share], *failed[:share], *trials[-share:]]
        chosen += [self.baseline] if self.baseline is not None else []
        return History(chosen, self.script_settings, decided_until=self.decided_until)

    def with_trials(self, more: Iterable[FinishedTrial]) -> History:
        """This history with further trials."""
        return History([*self._by_settings.values(), *more], self.script_settings, decided_until=self.decided_until)
