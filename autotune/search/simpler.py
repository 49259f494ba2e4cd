"""The fastest settings without changes of no use: the script's own values, wherever another value gains nothing. Pure.

A search collects changes on its way, and some gain nothing beside the rest. Each change is taken back by a trial; the
trial also shows what the change is worth beside all others.
"""

from __future__ import annotations

from autotune.search.blame import changes_of, with_changes
from autotune.search.forecast import Forecast, forecast
from autotune.search.history import FinishedTrial, History
from autotune.search.memory_model import MemoryModel
from autotune.search.peak_forecast import PeakForecast
from autotune.search.plan_state import Candidate, PlanLimits
from autotune.settings import Settings
from autotune.space.search_space import SearchSpace

SIMPLER_STAGE = "simpler"
"""Stage of trials with a change of the fastest settings taken back."""

MAX_SIMPLER = 16
"""Most trials that take changes back: more than a dozen changes are rare, and noise may move the leader."""


LEAST_FIT = 0.8
"""Least probability that settings with a change taken back fit the memory: bf16 without need for speed may be what lets
the micro-batch fit."""


def without_useless_changes(history: History, space: SearchSpace, limits: PlanLimits) -> Candidate | None:
    """The next trial with a change taken back from the fastest settings; None when every change was looked at.

    Args:
        history: Finished trials.
        space: The settings to search.
        limits: The machine.
    """
    rivals = history.feasible
    num_tried = sum(trial.stage == SIMPLER_STAGE for trial in history.trials)
    if not rivals or num_tried >= MAX_SIMPLER:
        return None
    expected = forecast(history)
    leader = expected.fastest(rivals)[0]
    if leader.settings == history.script_settings:
        return None
    current = simplest(leader, history, noise_ratio=limits.noise_ratio)
    memory = MemoryModel(history, space, limits.cap_bytes, limits.fixed_bytes)
    peaks = PeakForecast(history, space, limits.reachable_bytes or limits.cap_bytes, limits.fixed_estimate_bytes)
    for settings in _with_fewer_changes(current.settings, history, expected, space):
        if settings in history or space.why_not(settings) is not None or memory.ruled_out(settings) is not None:
            continue
        if peaks.fit_probability(settings) >= LEAST_FIT:
            return Candidate(settings=settings, stage=SIMPLER_STAGE)
    return None


def simplest(leader: FinishedTrial, history: History, *, noise_ratio: float) -> FinishedTrial:
    """The measured trial with the fewest of a trial's changes and no other, at the same rate but for half the noise.

    Args:
        leader: A trial measured in full.
        history: Finished trials.
        noise_ratio: Relative noise of rates; a smaller difference is noise.
    """
    own = history.script_settings
    changes = changes_of(leader.settings, own)
    within = [
        trial
        for trial in history.feasible
        if trial.settings != own and changes_of(trial.settings, own).items() <= changes.items()
    ]
    rates = forecast(history).rates([leader, *within])
    least = rates[leader.settings] * (1 - noise_ratio / 2)
    good = [trial for trial in within if rates[trial.settings] >= least and not trial.is_near_cap] or [leader]
    return min(good, key=lambda trial: (len(changes_of(trial.settings, own)), -rates[trial.settings]))


def _with_fewer_changes(settings: Settings, history: History, expected: Forecast, space: SearchSpace) -> list[Settings]:
    """The settings without all changes expected to be useless, then without each single change, the least useful first.

    The last change stays: without it, the settings are the script's own. Changes asked for by the user stay too.
    """
    own = history.script_settings
    changes = changes_of(settings, own)
    asked = {name for name, value in space.params(own).items() if value not in space.allowed[name]}

    def without(*names: str) -> Settings:
        kept = {name: value for name, value in changes.items() if name not in names}
        return with_changes(kept, own, device_is_cpu=space.device_is_cpu)

    alone = {name: without(name) for name in changes.keys() - asked}
    alone = {name: one for name, one in alone.items() if one not in (settings, own)}
    if not alone:
        return []
    rates = expected.rates_of([settings, *alone.values()])
    ordered = sorted(alone, key=lambda name: -rates[alone[name]])
    useless = [name for name in ordered if rates[alone[name]] >= rates[settings]]
    together = [without(*useless)] if len(useless) > 1 else []
    return [one for one in (*together, *(alone[name] for name in ordered)) if one != own]
