"""The answer of the finals: the winner, the gain over the script's own settings, and what the user is told of both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.measure.paired import Comparison, Final, choose_winner, unselected
from autotune.model.trial_records import FinalRecord
from autotune.search.history import FinishedTrial
from autotune.settings import Precision, Settings, changes_for_load
from autotune.study import final_doubts
from autotune.study.budget import NUM_ROUNDS
from autotune.study.final_rates import fits, own_spread
from autotune.study.final_standing import Standing, as_finals, thrashing

UNSTEADY = 0.1
"""Spread of a finalist's rounds from which a steadier finalist wins a tie."""
LIKELY_CONFIDENCE = 0.9
"""Two-sided confidence from which the user is told that a contender without a proven gain is likely faster."""
LEAST_LIKELY_GAIN = 1.03
"""Smallest ratio to the script's own settings told as a likely gain."""
HIDDEN_GAIN = 1.1
"""Unproven gain from which finals that lack planned rounds are told as too short. A ResNet-50 on an H100 was 3.6x as
fast in the only round of new processes and 2.0x in the trials, and was told to have no gain."""
PRECISION_ORDER = (Precision.FP32, Precision.TF32, Precision.BF16, Precision.FP16)


@dataclass(frozen=True, kw_only=True, slots=True)
class FinalsResult:
    """The winner of the finals, compared with the baseline."""

    winner: FinishedTrial
    baseline: FinishedTrial | None
    comparison: Comparison | None
    """Winner against baseline; None when the baseline wins, or failed, or was not measured."""
    records: tuple[FinalRecord, ...]
    measured: frozenset[int] = frozenset()
    """Numbers of all contenders with a run in any finals of the study, also of contenders found slower and left out."""
    is_compared: bool = True
    """True when the rounds were enough to compare the contenders, or nothing had to be compared."""
    is_open: bool = False
    """True when planned rounds are missing, and in the others a contender was well ahead without a proven gain."""
    doubt: str = ""
    """Why the gain is in doubt, as sentences: trials of the same settings speak against it. Empty without a doubt."""
    beside_load: str = ""
    """The load beside the compared runs, in words, when a gain was measured; empty for quiet runs. Without a gain: the
    load beside settings that looked faster. These settings are not published, since the load may have made the gain."""
    told: tuple[str, ...] = ()
    """Sentences on disturbed rounds, and on settings not published because they may help only beside other load."""
    shortened: str = ""
    """How the finals were cut short for want of time, as a sentence or two; empty when the finals are complete."""


def choose(standing: Standing, *, is_last: bool) -> FinalsResult | None:
    """The winner by the runs so far; None without a feasible run.

    Args:
        standing: The contenders and their runs.
        is_last: True when no time is left for another round: the look at the comparisons is the last.
    """
    contenders, baseline, records = standing.contenders, standing.baseline, standing.records
    has_baseline_fit = baseline is not None and fits(records, baseline.number)
    finals = standing.finals if has_baseline_fit else as_finals(records)
    if not any(final.feasible for final in finals):
        return None
    numbers = {final.candidate for final in finals}
    against = baseline.number if baseline is not None and baseline.number in numbers else None
    if against is not None and has_baseline_fit:
        finals = _without_failures(finals, against)
    if against is None or numbers == {final.candidate for final in finals if not final.feasible}:
        number = _fastest(finals, against)
        return FinalsResult(winner=contenders[number], baseline=baseline, comparison=None, records=records)
    number, comparisons = _winner(finals, against, standing, is_last=is_last)
    if number not in comparisons and has_baseline_fit:
        number = against  # The script's own settings failed in a round: the gain over the script is unknown.
    comparison = comparisons.get(number) if number != against else None
    is_gain = comparison is not None and comparison.is_gain
    winner, own, counted = contenders[number], contenders[against], final_doubts.counted(records)
    held_back = _held_back(standing, own)
    if is_gain:
        beside_load = final_doubts.load_words(counted, {number, against})
    else:
        ahead = {rival for rival, beside in held_back.items() if beside.is_gain or beside.ratio >= HIDDEN_GAIN}
        beside_load = final_doubts.load_words(records, {against, *ahead}) if ahead else ""
    doubt = final_doubts.contradiction(comparison, winner, own, counted) if comparison is not None and is_gain else ""
    return FinalsResult(
        winner=winner,
        baseline=baseline,
        comparison=comparison,
        records=records,
        doubt=doubt,
        beside_load=beside_load,
        told=_told(standing, finals, own, held_back, has_won=number != against),
    )


def without_runs(contenders: Mapping[int, FinishedTrial], baseline: FinishedTrial | None) -> FinalsResult:
    """The result when no run fitted the time: the script's own settings, or the best trial when these do not fit."""
    number = baseline.number if baseline is not None and baseline.number in contenders else next(iter(contenders))
    return FinalsResult(winner=contenders[number], baseline=baseline, comparison=None, records=())


def hidden_gain(result: FinalsResult, standing: Standing) -> str:
    """A sentence on a contender well ahead of the script's own settings, without a proven gain; empty otherwise."""
    own = result.baseline
    if own is None or result.winner.number != own.number:
        return ""
    finals = standing.finals
    rivals = [number for number in standing.contenders if number != own.number]
    found = {number: standing.compare(finals, number, own.number) for number in rivals}
    ahead = {number: one for number, one in found.items() if one is not None and one.ratio >= HIDDEN_GAIN}
    if not ahead:
        return ""
    number, best = max(ahead.items(), key=lambda one: one[1].ratio)
    return _unproven(standing, finals, own.number) or (
        f"Trial {number} was {best.ratio:.2f}x [{best.low:.2f}, {best.high:.2f}] as fast as yours in "
        f"{best.num_rounds} rounds of the finals, too few to tell."
    )


def tie_key(trial: FinishedTrial, records: Sequence[FinalRecord], own: Settings) -> tuple[float, ...]:
    """Order of ties: steadier rounds, less memory, fewer changes, fewer workers, higher precision, age.

    Memory counts in steps of a tenth, because less is chance.

    Args:
        trial: A finalist.
        records: The finals.
        own: The script's own settings.
    """
    peaks = [record.result.peak_memory_bytes or 0 for record in records if record.number == trial.number]
    peak = round(math.log(max(peaks, default=1) or 1) / math.log(1.1))
    steadiness = math.floor(math.log(max(own_spread(records, trial.number), UNSTEADY) / UNSTEADY) / math.log(3))
    num_changes = len(trial.settings.differences(own))
    precision = PRECISION_ORDER.index(trial.settings.precision)
    return (steadiness, peak, num_changes, trial.settings.num_workers, precision, trial.number)


def _winner(
    finals: Sequence[Final], against: int, standing: Standing, *, is_last: bool
) -> tuple[int, dict[int, Comparison]]:
    """The winner and all comparisons; a contender that thrashed at the cap wins only without a gain elsewhere."""
    contenders, records = standing.contenders, standing.records

    def key(number: int) -> tuple[float, ...]:
        return tie_key(contenders[number], records, contenders[against].settings)

    def chosen_of(some: Sequence[Final]) -> tuple[int, dict[int, Comparison]]:
        number, comparisons = choose_winner(some, against, key, num_candidates=standing.num_rivals, is_last=is_last)
        if number in comparisons and number != against:
            comparisons[number] = unselected(comparisons[number], some, number, against, key)
        return number, comparisons

    thrashed = thrashing(records) - {against}
    if thrashed:
        number, comparisons = chosen_of([final for final in finals if final.candidate not in thrashed])
        if number != against:
            return number, comparisons
    return chosen_of(finals)


def _without_failures(finals: list[Final], own: int) -> list[Final]:
    """The runs without failed runs of the script's own settings in further rounds.

    The planned rounds tell whether the script's own settings can be compared with; a later failure takes nothing back.
    """
    return [final for final in finals if final.feasible or final.candidate != own or final.round < NUM_ROUNDS]


def _fastest(finals: Sequence[Final], against: int | None) -> int:
    """The fastest candidate among candidates feasible in every round; without any, the baseline if ever feasible."""
    failed = {final.candidate for final in finals if not final.feasible}
    rates: dict[int, list[float]] = {}
    for final in finals:
        if final.candidate not in failed:
            rates.setdefault(final.candidate, []).append(final.samples_per_second)
    if not rates:
        feasible = [final.candidate for final in finals if final.feasible]
        return against if against in feasible else feasible[0]
    return max(rates, key=lambda number: sum(rates[number]) / len(rates[number]))


def _told(
    standing: Standing,
    finals: Sequence[Final],
    own: FinishedTrial,
    held_back: Mapping[int, Comparison],
    *,
    has_won: bool,
) -> tuple[str, ...]:
    """What the user is told of the runs, as sentences."""
    records = standing.records
    sentences = [
        final_doubts.shared_words(records),
        final_doubts.disturbed_words(records),
        final_doubts.failure_words(records, own.number),
        *(_held_back_words(standing.contenders[number], own, beside) for number, beside in held_back.items()),
        "" if has_won else _unproven(standing, finals, own.number),
    ]
    return tuple(filter(None, sentences))


def _held_back(standing: Standing, own: FinishedTrial) -> dict[int, Comparison]:
    """Comparisons with contenders that were faster beside other load, and are not published, the fastest first."""
    found = {}
    for trial in standing.waiting_for_quiet():
        beside = standing.compare(as_finals(standing.records), trial.number, own.number)
        if beside is not None:
            found[trial.number] = beside
    return found


def _held_back_words(trial: FinishedTrial, own: FinishedTrial, beside: Comparison) -> str:
    """A sentence on settings that were faster beside other load, and are not published."""
    changes = ", ".join(changes_for_load(trial.settings, own.settings))
    return (
        f"Trial {trial.number} was {beside.ratio:.2f}x as fast as yours beside the load of others. Its {changes} may "
        "help only there, and no quiet moment came to compare: it is not published."
    )


def _unproven(standing: Standing, finals: Sequence[Final], against: int) -> str:
    """A sentence on the contender that is likely faster without a proven gain; empty without such a contender."""
    likely = {}
    for number in {final.candidate for final in finals} - {against}:
        found = standing.compare(finals, number, against)
        narrow = standing.compare(finals, number, against, confidence=LIKELY_CONFIDENCE)
        is_open = found is not None and not found.is_gain and found.ratio >= LEAST_LIKELY_GAIN
        if found is not None and is_open and narrow is not None and narrow.is_gain:
            likely[number] = found
    if not likely:
        return ""
    number, found = max(likely.items(), key=lambda one: one[1].ratio)
    return (
        f"Trial {number} was {found.ratio:.2f}x [{found.low:.2f}, {found.high:.2f}] as fast as yours in "
        f"{found.num_rounds} rounds of the finals: likely faster, but not beyond the noise. More --time, or a "
        "quieter machine, may prove it."
    )
