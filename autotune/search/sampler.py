"""Sampling after the plan: Optuna's TPE over the allowed settings, and the neighbours of the best."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import TPESampler
from optuna.trial import TrialState, create_trial

from autotune.search.history import FinishedTrial
from autotune.search.optuna_logging import quiet
from autotune.search.plan_state import ordered
from autotune.settings import SETTINGS, Settings, Value
from autotune.space.search_space import SearchSpace

NUM_STARTUP_TRIALS = 4
"""Trials before TPE suggests anything but random settings; the plan has added more trials than that."""

MAX_MULTIVARIATE = 6
"""Largest number of parameters for TPE to treat jointly; above, each is treated alone. By itself, TPE does better with
all parameters jointly, as the rivals in the benchmark of searches show. Beside the plan and the forecast, with their
knowledge of joint effects, TPE does not."""

MAX_FOLLOWED = 400
"""Largest study in memory; beyond, it restarts with the most informative trials, since TPE gets slower."""

NOT_SAMPLED = frozenset(setting.name for setting in SETTINGS if not setting.is_sampled)
"""Parameters that can only cost throughput; the plan looks for the winner's smallest at the end."""


class TpeSampler:
    """Suggestions for settings of a space, from the finished trials.

    The study's own distributions are the full static domains. TPE works on the allowed values, in a second study in
    memory: numbers are encoded as ranks, words and switches as categories.

    Args:
        space: The settings to search.
        seed: Base seed; mixed with the number of trials, so that a resumed search does not repeat itself.
    """

    def __init__(self, space: SearchSpace, seed: int) -> None:
        self._space = space
        self._seed = seed
        self._names = tuple(name for name in space.searched if name not in NOT_SAMPLED)
        self._values = {name: ordered(space.allowed[name]) for name in self._names}
        self._distributions = {name: _distribution(values) for name, values in self._values.items()}
        self._steps_from: dict[Settings, tuple[Settings, ...]] = {}
        self._begin()

    def _begin(self) -> None:
        """Begins with an empty study in memory."""
        self._followed: set[int] = set()
        self._num_added = 0
        """Number of trials in the study in memory."""
        with quiet():
            self._study = optuna.create_study(direction="maximize", pruner=optuna.pruners.NopPruner())

    def suggestions(
        self, finished: Iterable[FinishedTrial], running: Iterable[Settings], gated: Mapping[int, Settings]
    ) -> Iterator[Settings]:
        """Yields canonical settings suggested by TPE, without end, including repeated and finished settings.

        Args:
            finished: Trials with their outcomes.
            running: Settings under measurement by other tuners; TPE keeps away from them.
            gated: Settings never run for want of memory, by trial number.
        """
        if not self._names:
            return
        num_known = self._follow(finished, gated)
        others = [self._add(settings, state=TrialState.RUNNING) for settings in running]
        self._study.sampler = TPESampler(
            seed=_mixed(self._seed, num_known + len(others)),
            n_startup_trials=NUM_STARTUP_TRIALS,
            multivariate=False if len(self._names) > MAX_MULTIVARIATE else None,
            constant_liar=True,
        )
        try:
            while True:
                trial = self._study.ask(self._distributions)
                self._num_added += 1
                self._study.tell(trial, state=TrialState.FAIL)  # TPE ignores failed trials
                yield self._settings(trial.params)
        finally:
            for number in others:
                if number is not None:
                    self._study.tell(number, state=TrialState.FAIL)

    def values(self, name: str) -> tuple[Value, ...]:
        """Allowed values of a parameter, in rising order; empty for a parameter that is not searched."""
        return self._values.get(name, ())

    def neighbours(self, settings: Settings) -> tuple[Settings, ...]:
        """Legal settings that differ from `settings` in a single step of one parameter.

        The script's own settings may lie outside the allowed values; their only neighbour lies inside.
        """
        if settings not in self._steps_from:
            steps = dict.fromkeys(self._steps(settings))
            legal = (one for one in steps if one != settings and self._space.why_not(one) is None)
            self._steps_from[settings] = tuple(legal)
        return self._steps_from[settings]

    def _steps(self, settings: Settings) -> Iterator[Settings]:
        params = self._space.params(settings)
        allowed = {
            name: value if value in (values := self._space.allowed[name]) else values[0]
            for name, value in params.items()
        }
        inside = self._space.settings(allowed)
        if inside != settings:
            yield inside
            return
        for name in self._names:
            for value in _adjacent(self._values[name], params[name]):
                yield self._space.settings({**params, name: value})

    def _follow(self, finished: Iterable[FinishedTrial], gated: Mapping[int, Settings]) -> int:
        """Adds the new trials of the real study to the study in memory, in the order of their numbers."""
        if len(self._followed) > MAX_FOLLOWED:
            self._begin()
        known = {trial.number: (trial.settings, trial.samples_per_second or 0.0) for trial in finished}
        unmeasured = {number: (gated[number], None) for number in sorted(gated)[-MAX_FOLLOWED // 4 :]}
        for number, (settings, rate) in sorted((known | unmeasured).items()):
            if number not in self._followed:
                self._followed.add(number)
                self._add(settings, state=TrialState.PRUNED if rate is None else TrialState.COMPLETE, value=rate)
        return len(self._followed)

    def _add(self, settings: Settings, *, state: TrialState, value: float | None = None) -> int | None:
        """The number of a new trial; None when a value is not allowed, as the script's own may be."""
        params = self._params(settings)
        if params is None:
            return None
        number = self._num_added
        self._num_added += 1
        template = create_trial(params=params, distributions=self._distributions, state=state, value=value)
        with quiet():
            self._study.add_trial(template)
        return number

    def _params(self, settings: Settings) -> dict[str, Any] | None:
        """Ranks and categories of settings; None when a value is not allowed."""
        params = self._space.params(settings)
        encoded: dict[str, Any] = {}
        for name in self._names:
            values = self._values[name]
            if params[name] not in values:
                return None
            is_position = isinstance(self._distributions[name], IntDistribution)
            encoded[name] = values.index(params[name]) if is_position else params[name]
        return encoded

    def _settings(self, encoded: Mapping[str, Any]) -> Settings:
        own = self._space.params(self._space.script_settings)
        # A parameter fixed by the user to another value than the script's own keeps the fixed value.
        params: dict[str, Any] = {
            name: own[name] if own[name] in values else values[0] for name, values in self._space.allowed.items()
        }
        for name, value in encoded.items():
            is_position = isinstance(self._distributions[name], IntDistribution)
            params[name] = self._values[name][value] if is_position else value
        return self._space.settings(params)


def _distribution(values: tuple[Value, ...]) -> BaseDistribution:
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return IntDistribution(0, len(values) - 1)
    return CategoricalDistribution(values)


def _adjacent(values: tuple[Value, ...], value: Value) -> tuple[Value, ...]:
    """The next values in both directions for a number, all other values for a category."""
    if isinstance(_distribution(values), IntDistribution):
        if value not in values:
            return values[:1]
        index = values.index(value)
        return values[max(0, index - 1) : index] + values[index + 1 : index + 2]
    return tuple(other for other in values if other != value)


def _mixed(seed: int, num_trials: int) -> int:
    """A separate seed for every number of trials, the same in every process."""
    digest = hashlib.sha256(f"{seed} {num_trials}".encode()).digest()
    return int.from_bytes(digest[:4], "big")
