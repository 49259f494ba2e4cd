"""Takes idle changes of the winner back before the result is published. An idle change has no effect on any run.

nanoGPT copies batches without waiting by itself. A trial there that changes `non_blocking` changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from autotune.model.search_result import Contribution
from autotune.model.trial_records import FinalRecord
from autotune.search.history import FinishedTrial
from autotune.settings import Settings, text_of
from autotune.store.records import StudyRecord
from autotune.study.final_choice import FinalsResult
from autotune.verdict.in_force import idle_changes


def idle_in(winner: FinishedTrial, records: Sequence[FinalRecord], study: StudyRecord) -> tuple[str, ...]:
    """The names of the winner's idle changes by the runs of the finals, without changes that the user asked for.

    Args:
        winner: Winner of the finals.
        records: Runs of the finals.
        study: The study, with the script's own settings and the user's ranges.
    """
    if study.script_settings is None:
        return ()
    runs = [record.result for record in records if record.number == winner.number]
    return idle_changes(winner.settings, study.script_settings, runs, study.spec.asked_names)


def without_changes(settings: Settings, own: Settings, names: Collection[str]) -> Settings:
    """The settings with the script's own values under these names."""
    return replace(settings, **{name: getattr(own, name) for name in names})


def without_idle_winner(finals: FinalsResult, study: StudyRecord) -> FinalsResult:
    """The result of the finals; the script's own settings replace a winner with idle changes alone.

    A gain of idle changes is chance.
    """
    own, winner = finals.baseline, finals.winner
    if own is None or winner.number == own.number:
        return finals
    idle = idle_in(winner, finals.records, study)
    if not idle or without_changes(winner.settings, own.settings, idle) != own.settings:
        return finals
    told = f"Trial {winner.number} ran as your own settings do: {_told(winner.settings, idle)} changed nothing."
    return replace(finals, winner=own, comparison=None, doubt="", beside_load="", told=(*finals.told, told))


def idle_notes(winner: FinishedTrial, names: Collection[str]) -> tuple[str, ...]:
    """A sentence on the changes that were taken back; nothing without any."""
    if not names:
        return ()
    which = f"{_told(winner.settings, names)} too, which its runs put to no use"
    return (f"Trial {winner.number} had {which}: your own value is kept.",)


def _told(settings: Settings, names: Collection[str]) -> str:
    return ", ".join(f"{name}={text_of(getattr(settings, name))}" for name in names)


def worth_without(contributions: Sequence[Contribution], idle: Collection[str]) -> tuple[Contribution, ...]:
    """What the published changes were worth, by trials that had idle changes too.

    A chain of trials with a link of idle changes alone would tell of noise, and is left out.
    """
    told = [replace(one, settings=tuple(name for name in one.settings if name not in idle)) for one in contributions]
    is_broken = any(one.is_along and not one.settings for one in told)
    along = {one.settings for one in told if one.is_along and not is_broken}
    return tuple(one for one in told if one.settings and (one.settings in along) is one.is_along)
