"""Tries the fastest settings without changes for loaded machines, in searches beside foreign load. Pure.

Beside a program on one of two cores, a script with a single thread trained 3.2 times as fast as with two threads; on a
quiet machine the same script trained two thirds as fast. Passive waiting and fewer workers mislead in the same way.
"""

from __future__ import annotations

from autotune.search.blame import changes_of, with_changes
from autotune.search.history import FinishedTrial, History
from autotune.search.plan_state import Candidate
from autotune.settings import changes_for_load
from autotune.space.search_space import SearchSpace

STAGE = "beside load"
"""Stage of trials without changes for loaded machines."""


def is_suspect(trial: FinishedTrial, baseline: FinishedTrial | None) -> bool:
    """Whether a trial has changes for loaded machines, and the trial or the baseline ran beside load."""
    if baseline is None:
        return False
    was_loaded = trial.is_beside_load or baseline.is_beside_load
    return was_loaded and bool(changes_for_load(trial.settings, baseline.settings))


def without_changes_for_load(history: History, space: SearchSpace) -> Candidate | None:
    """The next trial: the fastest settings without changes for loaded machines; None if tried before, or unchanged.

    Changes asked for by the user, by a range without the script's own value, stay.
    """
    own = history.script_settings
    leader = history.best
    if leader is None or not is_suspect(leader, history.baseline):
        return None
    own_values = space.params(own.canonical(device_is_cpu=space.device_is_cpu))
    suspected = {
        name for name in changes_for_load(leader.settings, own) if own_values.get(name) in space.allowed.get(name, ())
    }
    kept = {name: value for name, value in changes_of(leader.settings, own).items() if name not in suspected}
    settings = with_changes(kept, own, device_is_cpu=space.device_is_cpu)
    if settings == own or settings in history or space.why_not(settings) is not None:
        return None
    return Candidate(settings=settings, stage=STAGE)


def first_above_suspicion(history: History, space: SearchSpace) -> Candidate | None:
    """The fastest settings without changes for loaded machines, as an early trial; at most one per study.

    Under lasting foreign load no gain by such changes is published, and a short search has no time left for the trial
    at the end. None if a rival without such changes is already faster than the script's own settings, and if the user
    asked for such a change.
    """
    own, baseline = history.script_settings, history.baseline
    if baseline is None or any(trial.stage == STAGE for trial in history.trials):
        return None
    least = baseline.samples_per_second or 0.0
    faster = [trial for trial in history.feasible if (trial.samples_per_second or 0.0) > least]
    if any(trial.settings != own and not changes_for_load(trial.settings, own) for trial in faster):
        return None
    candidate = without_changes_for_load(history, space)
    return candidate if candidate is not None and not changes_for_load(candidate.settings, own) else None


def with_alternative(ordered: list[FinishedTrial], history: History) -> list[FinishedTrial]:
    """The finalists; behind a suspect leader, the fastest trial above suspicion takes the second place.

    Args:
        ordered: Possible winners, the fastest first.
        history: Finished trials.
    """
    if not ordered or not is_suspect(ordered[0], history.baseline):
        return ordered
    calm = [trial for trial in history.feasible if not is_suspect(trial, history.baseline)]
    found = next((trial for trial in calm if trial.settings != history.script_settings), None)
    if found is None:
        return ordered
    return [ordered[0], found, *(trial for trial in ordered[1:] if trial.number != found.number)]
