"""What each change of the winner was worth, as far as single trials tell. Pure.

A search measures trials with only some of the winner's changes. The longest chain of such trials from the baseline to
the winner, each with more of the changes than the previous, splits the gain into factors. Changes always tried together
stay together: every number here was measured, none estimated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from autotune.model.search_result import Contribution
from autotune.search.history import FinishedTrial, History
from autotune.settings import Settings

Changes = frozenset[str]


def contributions(history: History, winner: Settings) -> tuple[Contribution, ...]:
    """The factors of the winner's gain along the finest chain of trials, then known factors of single changes.

    Args:
        history: Finished trials; only trials measured in full count.
        winner: Canonical settings.

    Returns:
        Empty when baseline and winner are the same or one was not measured in full.
    """
    own = history.script_settings
    if history.rate(own) is None or history.rate(winner) is None or own == winner:
        return ()
    wanted = {name: ours for name, (ours, _) in winner.differences(own).items()}
    chain = _finest_chain(_steps(history, own, wanted))
    along = [
        _contribution(before, after, tuple(name for name in wanted if name in changes - earlier), is_along=True)
        for (earlier, before), (changes, after) in pairwise(chain)
    ]
    joint = {name for factor in along if len(factor.settings) > 1 for name in factor.settings}
    beside = [
        found
        for name in wanted
        if name in joint
        if (found := _single_contribution(history, own, winner, name)) is not None
    ]
    return (*along, *beside)


def _steps(history: History, own: Settings, wanted: Mapping[str, Any]) -> dict[Changes, FinishedTrial]:
    """Trials with some of the winner's changes and no other difference from the baseline, by the changes."""
    found = {}
    for trial in history.feasible:
        changes = trial.settings.differences(own)
        if all(name in wanted and ours == wanted[name] for name, (ours, _) in changes.items()):
            found[frozenset(changes)] = trial
    return found


def _finest_chain(steps: Mapping[Changes, FinishedTrial]) -> list[tuple[Changes, FinishedTrial]]:
    """The longest chain of growing sets from no change to all; of equally long chains, the one of earlier trials."""
    best: dict[Changes, list[Changes]] = {}
    for changes in sorted(steps, key=lambda one: (len(one), steps[one].number)):
        before = [chain for chain in best.values() if chain[-1] < changes and not chain[0]]
        longest = max(before, key=lambda chain: (len(chain), -sum(steps[one].number for one in chain)), default=[])
        best[changes] = [*longest, changes]
    everything = max(steps, key=len)
    return [(changes, steps[changes]) for changes in best[everything]]


def _single_contribution(history: History, own: Settings, winner: Settings, name: str) -> Contribution | None:
    """The worth of one change between two trials with no other difference, the pair most like the winner.

    If the trial without the change was stopped early, the result is a lower bound.
    """
    change = winner.differences(own)[name]
    pairs = [
        (before, after)
        for after in history.feasible
        for before in history.sound
        if after.settings.differences(before.settings) == {name: change}
    ]
    nearest = min(
        pairs,
        key=lambda pair: (len(pair[1].settings.differences(winner)), not pair[0].is_feasible, pair[1].number),
        default=None,
    )
    return _contribution(*nearest, (name,), is_along=False) if nearest is not None else None


def _contribution(
    before: FinishedTrial, after: FinishedTrial, settings: tuple[str, ...], *, is_along: bool
) -> Contribution:
    assert before.samples_per_second is not None and after.samples_per_second is not None
    ratio = after.samples_per_second / before.samples_per_second
    halves = [trial.half_width_ratio for trial in (before, after)]
    spread = math.exp(math.hypot(*(half or 0.0 for half in halves)))
    return Contribution(
        settings=settings,
        ratio=ratio,
        interval=(ratio / spread, ratio * spread) if before.is_feasible and None not in halves else None,
        is_least=not before.is_feasible,
        from_trial=before.number,
        to_trial=after.number,
        is_along=is_along,
    )
