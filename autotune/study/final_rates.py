"""Rates of the finalists over their runs: the published rate with its interval, and how much the rounds differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from autotune.measure.pair_interval import MOST_TYPICAL_SPREAD, TYPICAL_RUN_SPREAD, half_width
from autotune.measure.paired import SHARED_ERROR
from autotune.model.result import Measurement, TrialResult
from autotune.model.search_result import Steadiness
from autotune.model.trial_records import FinalRecord

CONFIDENCE = 0.95
"""Confidence of the interval of a published rate."""
NORMAL_95 = 1.96
"""Half of a 95 % interval in standard deviations."""


def rate_of(result: TrialResult) -> float:
    """Rate of a run in samples per second; 0 without a measurement."""
    return result.measurement.samples_per_second if result.measurement is not None else 0.0


def fits(records: Sequence[FinalRecord], number: int) -> bool:
    """Whether a finalist stayed within the memory limits in every final."""
    return not any(record.result.outcome.is_infeasible for record in records if record.number == number)


def own_spread(records: Sequence[FinalRecord], number: int) -> float:
    """Standard deviation of the logarithm of a finalist's rates around each round's mean; 0 for fewer than 2 rounds."""
    rounds: dict[int, dict[int, float]] = {}
    for record in records:
        if record.result.measurement is not None:
            rates = rounds.setdefault(record.round, {})
            rates[record.number] = math.log(record.result.measurement.samples_per_second)
    own = [rates[number] - fmean(rates.values()) for rates in rounds.values() if number in rates]
    return stdev(own) if len(own) > 1 else 0.0


def steadiness_of(records: Sequence[FinalRecord]) -> tuple[Steadiness, ...]:
    """How much the rounds of each finalist differ, by number; only finalists with two rounds or more."""
    rates: dict[int, list[float]] = {}
    for record in records:
        if record.result.measurement is not None:
            rates.setdefault(record.number, []).append(math.log(record.result.measurement.samples_per_second))
    return tuple(
        Steadiness(trial=number, num_rounds=len(logs), spread=stdev(logs))
        for number, logs in sorted(rates.items())
        if len(logs) > 1
    )


def published_rate(records: Sequence[FinalRecord], number: int) -> tuple[float, tuple[float, float]] | None:
    """Geometric mean of a finalist's rates over the rounds, in samples per second, with the interval at 95 %.

    None when the finalist was never measured. The interval knows the spread of a finalist's own rounds and of the other
    finalists' rounds (`autotune.measure.pair_interval`), and allows for rounds in the process of other runs as a
    comparison does. A single round has the window's own interval, widened by the spread of the other finalists' rounds
    or the usual spread of runs, whichever is larger.
    """
    results = [record.result for record in records if record.number == number]
    measured = [result.measurement for result in results if result.measurement is not None]
    if not measured:
        return None
    if len(measured) == 1:
        return _of_single_round(measured[0], _typical_spread(records, number))
    rates = [math.log(measurement.samples_per_second) for measurement in measured]
    mean, half = fmean(rates), half_width(rates, _typical_spread(records, number), CONFIDENCE)
    half += SHARED_ERROR * fmean(result.is_live for result in results if result.measurement is not None)
    return math.exp(mean), (math.exp(mean - half), math.exp(mean + half))


def _of_single_round(window: Measurement, run_spread: float) -> tuple[float, tuple[float, float]]:
    """The rate of a window with the interval at 95 % for another run: the errors of window and run in quadrature.

    Runs of the same settings differ by more than a window shows: a sentence "22.2 [20.7, 23.7]" rested on one run, and
    another run of the search had said 6.6.
    """
    rate = window.samples_per_second
    half = math.hypot((window.high - window.low) / 2 / rate, NORMAL_95 * run_spread)
    return rate, (rate * math.exp(-half), rate * math.exp(half))


def _typical_spread(records: Sequence[FinalRecord], number: int) -> float:
    """Typical spread of the logarithm of a rate on this machine, by the runs of all finalists but the given one."""
    others: dict[int, list[float]] = {}
    for record in records:
        if record.number != number and record.result.measurement is not None:
            others.setdefault(record.number, []).append(math.log(record.result.measurement.samples_per_second))
    spreads = [stdev(rates) for rates in others.values() if len(rates) > 1]
    return max(TYPICAL_RUN_SPREAD, min(MOST_TYPICAL_SPREAD, max(spreads, default=0.0)))
