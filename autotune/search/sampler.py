"""What comes after the plan: Optuna's TPE over what may be tried, and the neighbours of the best."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import TPESampler
from optuna.trial import TrialState, create_trial

from autotune.search.history import FinishedTrial
from autotune.search.quiet import quiet
from autotune.search.walk import ordered
from autotune.settings import Settings
from autotune.space.space import SearchSpace, Value

NUM_STARTUP_TRIALS = 4
"""Trials before TPE has an opinion; the plan has told it more than that."""

MAX_MULTIVARIATE = 6
"""Above so many parameters TPE treats them one by one: on nine mostly discrete ones the joint form lost (mean regret
after 100 trials 6.3 % against 2.9 %), on six it won."""

MAX_NEIGHBOURS = 500
"""Settings that are looked at before the neighbourhood counts as exhausted."""

NOT_SAMPLED = frozenset({"memory_fraction", "expandable_segments"})
"""Parameters that can only cost throughput, or not change it; the plan sees to them."""


class TpeSampler:
    """Suggestions for settings of a space, from the trials that there are.

    The study's own distributions are the full static domains. TPE works on what is allowed of them, in a study in
    memory that is filled anew for every trial: numbers as positions in their order, the rest as categories.

    Args:
        space: What may be tried.
        seed: Base seed; it is mixed with the number of trials, so that a resumed search does not repeat itself.
    """

    def __init__(self, space: SearchSpace, seed: int) -> None:
        self._space = space
        self._seed = seed
        self._names = tuple(name for name in space.searched if name not in NOT_SAMPLED)
        self._values = {name: ordered(space.allowed[name]) for name in self._names}
        self._distributions = {name: _distribution(values) for name, values in self._values.items()}

    def suggestions(
        self, finished: Iterable[FinishedTrial], running: Iterable[Settings], gated: Iterable[Settings]
    ) -> Iterator[Settings]:
        """Endless canonical settings that TPE would try next; they may repeat, and may be among the finished.

        Args:
            finished: Trials with their outcomes.
            running: Settings that other tuners measure at this moment; TPE keeps away from them.
            gated: Settings that were not run because they need too much memory.
        """
        if not self._names:
            return
        study = self._study(tuple(finished), tuple(running), tuple(gated))
        while True:
            trial = study.ask(self._distributions)
            yield self._settings(trial.params)

    def neighbours(self, settings: Settings) -> Iterator[Settings]:
        """Settings in the order of their distance, in single steps of one parameter, at most MAX_NEIGHBOURS."""
        seen = {settings: None}
        waiting = [settings]
        while waiting:
            following: list[Settings] = []
            for centre in waiting:
                for neighbour in self._steps(centre):
                    if neighbour not in seen:
                        seen[neighbour] = None
                        following.append(neighbour)
                        yield neighbour
                        if len(seen) > MAX_NEIGHBOURS:
                            return
            waiting = following

    def _steps(self, settings: Settings) -> Iterator[Settings]:
        params = self._space.params(settings)
        for name in self._names:
            for value in _adjacent(self._values[name], params[name]):
                yield self._space.settings({**params, name: value})

    def _study(
        self, finished: tuple[FinishedTrial, ...], running: tuple[Settings, ...], gated: tuple[Settings, ...]
    ) -> optuna.Study:
        num_known = len(finished) + len(running) + len(gated)
        sampler = TPESampler(
            seed=_mixed(self._seed, num_known),
            n_startup_trials=NUM_STARTUP_TRIALS,
            multivariate=False if len(self._names) > MAX_MULTIVARIATE else None,
            constant_liar=True,
        )
        with quiet():
            study = optuna.create_study(direction="maximize", sampler=sampler, pruner=optuna.pruners.NopPruner())
        for trial in finished:
            params = self._params(trial.settings)
            if params is not None:
                rate = trial.samples_per_second or 0.0
                study.add_trial(create_trial(params=params, distributions=self._distributions, value=rate))
        for settings, state in [(s, TrialState.RUNNING) for s in running] + [(s, TrialState.PRUNED) for s in gated]:
            params = self._params(settings)
            if params is not None:
                study.add_trial(create_trial(params=params, distributions=self._distributions, state=state))
        return study

    def _params(self, settings: Settings) -> dict[str, Any] | None:
        """Positions and categories of settings; None when one of them is not allowed, as the script's own may be."""
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
        own = self._space.params(self._space.natural)
        # What the user fixed to another value than the script's own is not sampled, but holds.
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
    """The next values in both directions of a number, all others of a category."""
    if isinstance(_distribution(values), IntDistribution):
        if value not in values:
            return values[:1]
        index = values.index(value)
        return values[max(0, index - 1) : index] + values[index + 1 : index + 2]
    return tuple(other for other in values if other != value)


def _mixed(seed: int, num_trials: int) -> int:
    """A seed of its own for every number of trials, the same in every process."""
    digest = hashlib.sha256(f"{seed} {num_trials}".encode()).digest()
    return int.from_bytes(digest[:4], "big")
