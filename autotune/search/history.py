"""The finished trials of a study, looked up by their settings. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from autotune.model.outcome import Outcome
from autotune.settings import Settings

MAX_TELLING = 200
"""Trials up to which every one is looked at for the next proposal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedTrial:
    """What the search knows of one trial that ended."""

    number: int
    """Optuna's trial number."""
    settings: Settings
    """In canonical form."""
    stage: str
    outcome: Outcome
    samples_per_second: float | None = None
    """The rate; the upper bound of a raced-out trial; None for every other ending."""
    peak_memory_bytes: int | None = None
    """Of a trial over the cap, what it needed at least."""
    compute_samples_per_second: float | None = None
    """Rate without the loader, on one cached batch; also of raced-out trials."""
    data_wait_fraction: float | None = None
    half_width_ratio: float | None = None
    """Half of the 95 % interval as a share of the rate."""
    expected_gain_ratio: float | None = None
    """By how much of the best rate it was expected to be faster; None where that was not known, or it was not chosen
    for that."""
    is_near_cap: bool = False
    """The allocator thrashed at the cap."""
    lacks_host_memory: bool = False
    """Infeasible for want of the host's memory, whatever the device's."""
    reason: str = ""
    """Why it ended as it did, as one sentence, with the place in the code where that is known."""
    missed: tuple[str, ...] = ()
    """Names of settings that were asked for and were not in force."""
    is_inconclusive: bool = False
    """It failed, and that says nothing of its settings."""

    @property
    def is_feasible(self) -> bool:
        """Measured in full and under the cap."""
        return self.outcome is Outcome.OK and self.samples_per_second is not None


class History:
    """Finished trials by settings; of two attempts at the same settings the later one counts.

    Args:
        trials: Finished trials with canonical settings, in any order.
        script_settings: The script's own settings, canonical.
    """

    def __init__(self, trials: Iterable[FinishedTrial], script_settings: Settings) -> None:
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
        """Samples per second of a feasible trial of these settings; None where there is none."""
        trial = self.get(settings)
        return trial.samples_per_second if trial is not None and trial.is_feasible else None

    @property
    def feasible(self) -> tuple[FinishedTrial, ...]:
        """Trials measured in full under the cap, the fastest first."""
        found = [trial for trial in self._by_settings.values() if trial.is_feasible]
        return tuple(sorted(found, key=lambda trial: (-(trial.samples_per_second or 0.0), trial.number)))

    @property
    def sound(self) -> tuple[FinishedTrial, ...]:
        """Trials with a rate or a bound of it, under the cap, in the order of their numbers."""
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
    def telling(self) -> History:
        """The trials that say most of what to try next; all of them where they are few.

        Of thousands they are the fastest, those that compute fastest, the latest, the smallest that did not fit, and
        the baseline: what a proposal costs does not grow with the trials then.
        """
        if len(self) <= MAX_TELLING:
            return self
        trials = self.trials
        rated = sorted(self.sound, key=lambda trial: -(trial.compute_samples_per_second or 0.0))
        failed = sorted(
            (trial for trial in trials if trial.outcome.is_infeasible),
            key=lambda trial: (trial.settings.batch_size or 1, trial.settings.num_workers, trial.number),
        )
        share = MAX_TELLING // 5
        kept = [*self.feasible[: 2 * share], *rated[:share], *failed[:share], *trials[-share:]]
        return History([*kept, *([self.baseline] if self.baseline is not None else [])], self.script_settings)

    def with_trials(self, more: Iterable[FinishedTrial]) -> History:
        """This history and further trials."""
        return History([*self._by_settings.values(), *more], self.script_settings)
