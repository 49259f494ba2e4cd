"""Reasons to doubt the finals: load by other programs, shared processes, and single trials with a different ratio."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from autotune.measure.pair_interval import TYPICAL_RUN_SPREAD
from autotune.measure.paired import SHARED_ERROR, Comparison
from autotune.model.outcome import Outcome
from autotune.model.trial_records import FinalRecord
from autotune.search.history import FinishedTrial
from autotune.settings import Settings, changes_for_load
from autotune.study.final_rates import NORMAL_95

LEAST_QUIET = 2
"""Fewest quiet rounds that decide without the disturbed ones: a comparison needs two."""


def suspects(contenders: Mapping[int, FinishedTrial], own: Settings) -> frozenset[int]:
    """Numbers of the contenders with changes for loaded machines, such as fewer threads.

    Args:
        contenders: Contenders by number.
        own: The script's own settings.
    """
    return frozenset(number for number, trial in contenders.items() if changes_for_load(trial.settings, own))


def is_loaded(record: FinalRecord) -> bool:
    """Whether other programs kept cores busy during a run."""
    found = record.result.surroundings
    return found is not None and found.is_beside_load


def without_loaded(
    records: Sequence[FinalRecord], suspected: Collection[int], baseline: int | None
) -> tuple[FinalRecord, ...]:
    """All runs, without the runs of suspects in loaded rounds: the suspect or the baseline ran beside other load."""
    loaded = {record.round for record in records if record.number == baseline and is_loaded(record)}
    return tuple(
        record
        for record in records
        if record.number not in suspected or not (is_loaded(record) or record.round in loaded)
    )


def counted(records: Sequence[FinalRecord]) -> tuple[FinalRecord, ...]:
    """The runs of quiet rounds if at least two rounds, and half of all, were quiet; else all runs.

    The choice follows from the surroundings alone, never from a rate. A round with a failed run counts in any case,
    because settings fail for want of memory on a quiet machine too.
    """
    rounds, disturbed = {record.round for record in records}, disturbed_rounds(records)
    num_quiet = len(rounds - disturbed.keys())
    if num_quiet < LEAST_QUIET or 2 * num_quiet < len(rounds):
        return tuple(records)
    failed = {record.round for record in records if record.result.outcome is not Outcome.OK}
    return tuple(record for record in records if record.round in failed or record.round not in disturbed)


def disturbed_rounds(records: Sequence[FinalRecord]) -> dict[int, str]:
    """A sentence on the disturbance of each disturbed round, by round."""
    sentences: dict[int, str] = {}
    for record in records:
        found = record.result.surroundings
        if found is not None and found.disturbances_by_others:
            sentences.setdefault(record.round, found.disturbances_by_others[0])
    return sentences


def shared_words(records: Sequence[FinalRecord]) -> str:
    """A sentence on rounds in the process of the trials; empty when every run had a process of its own."""
    shared = {record.round for record in records if record.result.is_live}
    if not shared:
        return ""
    num_rounds = len({record.round for record in records})
    which = "All rounds" if len(shared) == num_rounds else f"{len(shared)} of the {num_rounds} rounds"
    return (
        f"{which} of the finals ran in the process of the trials, because the time was too short for new processes, or "
        f"only just enough. Rates there may differ from those of new processes by {SHARED_ERROR:.0%}, for which the "
        "interval allows; with more --time all rounds have new processes."
    )


def load_words(records: Sequence[FinalRecord], numbers: Collection[int]) -> str:
    """The load beside the runs of some contenders, in words; empty for quiet runs."""
    runs = [record for record in records if record.number in numbers and record.result.measurement is not None]
    loaded = [record for record in runs if is_loaded(record)]
    if not loaded:
        return ""
    seen = [record.result.surroundings for record in loaded]
    most = max((found.foreign_cpus or 0.0, found.usable_cpus) for found in seen if found is not None)
    return f"others kept up to {most[0]:.1f} of {most[1]:g} cores busy in {len(loaded)} of {len(runs)} runs"


def disturbed_words(records: Sequence[FinalRecord]) -> str:
    """A sentence on the rounds still disturbed after repeats; empty without a disturbed round.

    Rounds cut down to one contender for want of time compare nothing, and do not count.
    """
    numbers = {number: {record.number for record in records if record.round == number} for number in _rounds(records)}
    most = max(map(len, numbers.values()), default=0)
    records = [record for record in records if most == 1 or len(numbers[record.round]) > 1]
    sentences = disturbed_rounds(records)
    if not sentences:
        return ""
    rounds = _rounds(records)
    rest = "" if _rounds(counted(records)) == rounds else " The quiet rounds decided."
    first = next(iter(sentences.values()))
    if len(rounds) == 1:
        return f"The only round of the finals was disturbed, for instance: {first}"
    were = "was" if len(sentences) == 1 else "were"
    return f"{len(sentences)} of {len(rounds)} rounds of the finals {were} disturbed, for instance: {first}{rest}"


def _rounds(records: Sequence[FinalRecord]) -> set[int]:
    """The rounds of some runs."""
    return {record.round for record in records}


def failure_words(records: Sequence[FinalRecord], own: int) -> str:
    """A sentence on failed runs of the script's own settings; empty without such a run.

    Args:
        records: The finals.
        own: Number of the trial of the script's own settings.
    """
    runs = [record.result for record in records if record.number == own]
    failed = [result for result in runs if result.outcome.is_failed]
    if not failed:
        return ""
    return f"Your own settings failed in {len(failed)} of {len(runs)} runs of the finals, for instance: {failed[0].why}"


def contradiction(
    gain: Comparison, winner: FinishedTrial, baseline: FinishedTrial, records: Sequence[FinalRecord]
) -> str:
    """The reason to doubt a gain, by single trials of the same settings; empty where trials and finals agree.

    Disturbed trials do not count against quiet finals, and trials that were ended early have no such rate.

    Args:
        gain: Winner against baseline in the finals.
        winner: The trial of the winner's settings.
        baseline: The trial of the script's own settings.
        records: The finals.
    """
    rates = (winner.samples_per_second, baseline.samples_per_second)
    if rates[0] is None or rates[1] is None or not (winner.is_feasible and baseline.is_feasible):
        return ""
    numbers = {winner.number, baseline.number}
    surroundings = [record.result.surroundings for record in records if record.number in numbers]
    were_finals_quiet = not any(found is not None and found.disturbances_by_others for found in surroundings)
    if were_finals_quiet and (winner.is_disturbed or baseline.is_disturbed):
        return ""
    ratio = rates[0] / rates[1]
    halves = (winner.half_width_ratio or 0.0, baseline.half_width_ratio or 0.0)
    half = math.hypot(NORMAL_95 * math.sqrt(2) * TYPICAL_RUN_SPREAD, *halves)
    low, high = ratio * math.exp(-half), ratio * math.exp(half)
    if gain.low <= high and low <= gain.high:
        return ""
    return (
        f"In doubt: the finals say {gain.ratio:.2f}x [{gain.low:.2f}, {gain.high:.2f}], and single trials of the same "
        f"settings said {ratio:.2f}x [{low:.2f}, {high:.2f}]. On a quiet machine, autotune verify tells."
    )
