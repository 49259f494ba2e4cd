"""Trials counted as a round of the finals: unchosen trials, and chosen trials with a plain gain.

A chosen trial looks faster than its settings are, because chance helped to choose it. Without a choice the trials are
as good as a round of finals. Choosing raises a rate by a few percent, and not by half: a plain gain counts anyway.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.model.trial_records import FinalRecord, TrialRecord
from autotune.search.history import FinishedTrial, History
from autotune.study.final_rates import rate_of
from autotune.study.final_standing import Standing

PLAIN_GAIN = 1.5
"""Smallest gain for chosen trials to count as a further round: in the trials, and in each of one or two rounds."""
PLAIN_AGREEMENT = 1.15
"""Largest ratio of the gain in the trials and the gain in the only round, whichever is larger. Two rounds and the
trials need not agree: their spread is part of the interval."""
PLAIN_SPREAD = 0.1
"""Largest half width of a chosen trial's interval, as a share of the rate, for the trial to count as a round."""
PLAIN_WORDS = f" The trials of these settings put the gain at {PLAIN_GAIN}x or more too, and count as one more round."

COUNTED_WORDS = "The trials of these settings count as one of the rounds of the finals."


def num_rivals(trials: Sequence[FinishedTrial], history: History) -> int:
    """Number of the trials with settings different from the script's own."""
    return sum(trial.settings != history.script_settings for trial in trials)


def results_without_choice(
    history: History, finalists: Sequence[FinishedTrial], results: Mapping[int, TrialResult]
) -> Mapping[int, TrialResult]:
    """Results of the finalists' own trials, by number; empty when the finalists were chosen among several trials.

    A baseline without a rival counts as not chosen: its trial has a rate, and further runs would compare nothing.
    """
    if finalists and num_rivals(history.feasible, history) > 1:
        return {}
    return results


def results_of_trials(
    history: History, finalists: Sequence[FinishedTrial], trials: Sequence[TrialRecord]
) -> dict[int, TrialResult]:
    """Results of the baseline's and the finalists' own trials, by number.

    A trial that ended as too slow to win was not measured in full, and has no result here.
    """
    numbers = {trial.number for trial in (*finalists, history.baseline) if trial is not None}
    found = [trial for trial in trials if trial.number in numbers]
    return {trial.number: trial.result for trial in found if trial.result.outcome is not Outcome.RACED_OUT}


def rounds_of_trials(records: Sequence[FinalRecord], trials: Mapping[int, TrialResult]) -> set[int]:
    """The rounds that are the trials themselves, by number of the round."""
    others = {record.round for record in records if not _is_of_trial(record.result, trials.get(record.number))}
    return {record.round for record in records} - others


def counted_trials(records: Sequence[FinalRecord], chosen: Mapping[int, TrialResult]) -> list[int]:
    """The contenders with a round of trials in place of runs of their own, after rounds of runs; empty without one."""
    by_round: dict[int, dict[int, bool]] = {}
    for record in records:
        is_trial = _is_of_trial(record.result, chosen.get(record.number))
        by_round.setdefault(record.round, {})[record.number] = is_trial
    of_trials = [list(found) for found in by_round.values() if len(found) > 1 and all(found.values())]
    return of_trials[0] if len(of_trials) == 1 < len(by_round) else []


def plainly_faster(standing: Standing, chosen: Mapping[int, TrialResult], num_rounds: int) -> dict[int, FinishedTrial]:
    """The baseline and the fastest contender, if the rounds and the trials say the same of a plain gain; else empty.

    After a single round both gains must agree. After two rounds each gain must be plain; the interval over all of them
    decides.

    Args:
        standing: The contenders and their runs.
        chosen: Results of the trials, by number.
        num_rounds: Whole rounds so far.
    """
    baseline, gains = standing.baseline, _gains(standing, num_rounds)
    if baseline is None or not gains:
        return {}
    number = max(gains, key=lambda candidate: math.prod(gains[candidate]))
    pair = {number: standing.contenders[number], baseline.number: baseline}
    if not pair.keys() <= chosen.keys() or not all(map(_is_steady, pair.values())):
        return {}
    in_trials = rate_of(chosen[number]), rate_of(chosen[baseline.number])
    if not all(in_trials):
        return {}
    every = sorted((*gains[number], in_trials[0] / in_trials[1]))
    agrees = num_rounds > 1 or every[-1] <= PLAIN_AGREEMENT * every[0]
    return pair if every[0] >= PLAIN_GAIN and agrees else {}


def _gains(standing: Standing, num_rounds: int) -> dict[int, list[float]]:
    """Gain in each round, of the contenders measured in each of `num_rounds` rounds, as the baseline was."""
    rates: dict[int, dict[int, float]] = {}
    failed: set[int] = set()
    for record in standing.records:
        if record.result.outcome is Outcome.OK:
            rates.setdefault(record.number, {})[record.round] = rate_of(record.result)
        else:
            failed.add(record.number)
    baseline = standing.baseline
    if baseline is None or baseline.number in failed:
        return {}
    own = rates.pop(baseline.number, {})
    common = {number: own.keys() & of_one.keys() for number, of_one in rates.items() if number not in failed}
    return {n: [rates[n][r] / own[r] for r in rounds] for n, rounds in common.items() if len(rounds) == num_rounds}


def _is_steady(trial: FinishedTrial) -> bool:
    """Whether a trial was measured undisturbed, and with a narrow interval."""
    half = trial.half_width_ratio
    return not trial.is_disturbed and half is not None and half <= PLAIN_SPREAD


def _is_of_trial(result: TrialResult, trial: TrialResult | None) -> bool:
    """Whether the result of a final is the result of the trial itself, which counts as a round."""
    return trial is not None and (result.measurement, result.wall_s) == (trial.measurement, trial.wall_s)
