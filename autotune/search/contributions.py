"""What each change of the winner was worth, as far as single trials tell it. Pure.

A search measures on its way trials that have some of the winner's changes and not others. The longest chain of them
from the baseline to the winner, each with all that the one before had and more, splits the gain into factors. Changes
that only ever came together stay together: nothing here is estimated that was not measured.
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
    """The factors of the winner's gain along the finest chain of trials, and what is known of single changes.

    Args:
        history: Finished trials; only those that were measured in full count.
        winner: Canonical settings.

    Returns:
        Empty where baseline or winner was not measured in full, or they are the same.
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
    beside = [found for name in wanted if name in joint if (found := _beside(history, own, winner, name)) is not None]
    return (*along, *beside)


def _steps(history: History, own: Settings, wanted: Mapping[str, Any]) -> dict[Changes, FinishedTrial]:
    """Trials that differ from the baseline in nothing but some of the winner's changes, by these."""
    found = {}
    for trial in history.feasible:
        changes = trial.settings.differences(own)
        if all(name in wanted and ours == wanted[name] for name, (ours, _) in changes.items()):
            found[frozenset(changes)] = trial
    return found


def _finest_chain(steps: Mapping[Changes, FinishedTrial]) -> list[tuple[Changes, FinishedTrial]]:
    """The longest chain of growing sets from none of the changes to all; of equally long ones the earlier trials'."""
    best: dict[Changes, list[Changes]] = {}
    for changes in sorted(steps, key=lambda one: (len(one), steps[one].number)):
        before = [chain for chain in best.values() if chain[-1] < changes and not chain[0]]
        longest = max(before, key=lambda chain: (len(chain), -sum(steps[one].number for one in chain)), default=[])
        best[changes] = [*longest, changes]
    everything = max(steps, key=len)
    return [(changes, steps[changes]) for changes in best[everything]]


def _beside(history: History, own: Settings, winner: Settings, name: str) -> Contribution | None:
    """What one change was worth between two trials that differ in nothing else, those most like the winner's.

    The one without it may have been stopped early: then the change was worth at least so much.
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
