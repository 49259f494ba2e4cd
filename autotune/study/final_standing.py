"""The standing of the finals after the runs so far: the contenders able to win, and the need for further rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from autotune.measure.paired import Comparison, Final, compare, expected_gain
from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.model.trial_records import FinalRecord
from autotune.search.history import FinishedTrial
from autotune.search.prices import A_MINUTE_S
from autotune.study import final_doubts
from autotune.study.final_rates import rate_of

DROP_CONFIDENCE = 0.95
"""Two-sided confidence from which a contender slower than the leader runs no more. An error costs a contender, and
never makes a false gain."""
FAR_BEHIND = 1.5
"""Smallest ratio of the leader's rate and a contender's, in the trials and in each round, for the contender to run no
more if the script's own settings are faster too. Choosing a leader raises its rate by a few percent, not by half."""
WORTH_A_ROUND = 0.01
"""Expected gain, or narrowing of an interval in a minute, from which further rounds are worth their time."""
WIDE = 0.05
"""Half the width of an interval from which further rounds are considered."""
WIDE_SHARE = 0.1
"""Half the width of a gain's interval as a share of the gain, above which rounds go on; the larger bound counts."""
BUSY_DEVICE, ALIKE_BLOCKS = 0.9, 0.015
"""Least utilization of the device, and largest half width of a run's interval as a share of the rate, of a run in which
the device alone set the pace. On the recorded grids 91 of 92 runs with a utilization above 95 % are as narrow, and 3 of
316 runs below 80 %. A narrow interval alone says nothing: on shared cores such runs differ by 20 %."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """The contenders with their runs so far."""

    contenders: Mapping[int, FinishedTrial]
    """Contenders by number, the baseline included if measurable."""
    baseline: FinishedTrial | None
    """The trial of the script's own settings."""
    records: tuple[FinalRecord, ...]
    """The contenders' runs."""
    num_rivals: int
    """Contenders at the start of the finals, without the baseline."""

    @property
    def finals(self) -> list[Final]:
        """The runs that count; suspects of gains from other load count in quiet rounds alone."""
        records = final_doubts.counted(self.records)
        if self.baseline is None:
            return as_finals(records)
        suspected = final_doubts.suspects(self.contenders, self.baseline.settings)
        return as_finals(final_doubts.without_loaded(records, suspected, self.baseline.number))

    def compare(
        self, finals: Sequence[Final], candidate: int, against: int, *, confidence: float | None = None
    ) -> Comparison | None:
        """One contender against another by feasible runs; None with fewer than two common rounds."""
        feasible = [final for final in finals if final.feasible]
        try:
            return compare(feasible, candidate, against, num_candidates=self.num_rivals, confidence=confidence)
        except ValueError:
            return None

    def latest_rate(self, number: int) -> float:
        """Mean rate of a contender's runs, in samples per second; before the first run, the rate of the trial."""
        rates = [rate_of(record.result) for record in self.records if record.number == number]
        return sum(rates) / len(rates) if rates else self.contenders[number].samples_per_second or 0.0

    def able(self) -> dict[int, FinishedTrial]:
        """The contenders still able to win: a contender that failed in a round need not run again.

        The script's own settings stay in any case, and all contenders stay when every contender has failed.
        """
        failed = {record.number for record in self.records if record.result.outcome is not Outcome.OK}
        failed -= {self.baseline.number} if self.baseline is not None else set()
        able = {number: trial for number, trial in self.contenders.items() if number not in failed}
        return able or dict(self.contenders)

    def hopeful(self) -> dict[int, FinishedTrial]:
        """The contenders without those slower than the script's own settings, and than the leader by `FAR_BEHIND`.

        Both must hold in every round, the latter in the trials too. Most such contenders are the settings of an expert,
        which every finals measure.
        """
        running, baseline = dict(self.contenders), self.baseline
        rates: dict[int, dict[int, float]] = {}
        for record in self.records:
            rates.setdefault(record.number, {})[record.round] = rate_of(record.result)
        leader = max(rates, key=lambda number: fmean(rates[number].values()), default=None)
        if leader is None or baseline is None or baseline.number not in rates:
            return running

        def is_hopeless(number: int) -> bool:
            own, best, scripts = rates.get(number, {}), rates[leader], rates[baseline.number]
            rounds = [index for index in own.keys() & best.keys() & scripts.keys() if own[index]]
            rate = running[number].samples_per_second or math.inf
            in_trials = (running[leader].samples_per_second or 0.0) / rate
            is_far = min([in_trials, *(best[index] / own[index] for index in rounds)]) >= FAR_BEHIND
            return bool(rounds) and is_far and all(own[index] < scripts[index] for index in rounds)

        hopeful = {n: trial for n, trial in running.items() if n == baseline.number or not is_hopeless(n)}
        return hopeful if len(hopeful) > 1 else running  # A comparison takes two rounds of two.

    def in_doubt(self) -> dict[int, FinishedTrial]:
        """The contenders for further rounds: all but those probably slower than the leader, and the baseline."""
        finals, calm = self.finals, self.contenders.keys() - thrashing(self.records)
        means = {number: self.latest_rate(number) for number in calm or self.contenders}
        leader = max(means, key=lambda number: means[number])
        against = {
            number: self.compare(finals, leader, number, confidence=DROP_CONFIDENCE)
            for number in self.contenders
            if number != leader
        }
        slower = {number for number, comparison in against.items() if comparison is not None and comparison.is_gain}
        kept = {leader, *([self.baseline.number] if self.baseline is not None else [])}
        return {number: trial for number, trial in self.contenders.items() if number in kept or number not in slower}

    def is_open(self, round_s: float) -> bool:
        """Whether the answer is open or wide.

        Open: a contender may be faster than the present choice, by more than a percent as far as expected. Wide: a long
        interval of the gain, which a minute of rounds narrows by a percent or more.

        Args:
            round_s: Expected time of a round of the contenders.
        """
        if self.baseline is None:
            return False
        finals, own = self.finals, self.baseline.number
        ratios = {number: self.compare(finals, number, own) for number in self.contenders if number != own}
        known = {number: comparison for number, comparison in ratios.items() if comparison is not None}
        gains = [number for number, comparison in known.items() if comparison.is_gain]
        choice = max(gains, key=lambda number: known[number].ratio, default=own)
        rivals = [self.compare(finals, number, choice) for number in known if number != choice]
        if any(rival is not None and self._expected_gain(rival) >= WORTH_A_ROUND for rival in rivals):
            return True
        return choice != own and _is_wide(known[choice], round_s)

    def waiting_for_quiet(self) -> tuple[FinishedTrial, ...]:
        """Suspects with too few quiet rounds that look faster than the script's own settings, the fastest first."""
        if self.baseline is None:
            return ()
        finals, quiet, own = as_finals(self.records), self.finals, self.baseline.number
        found = {}
        for number in final_doubts.suspects(self.contenders, self.baseline.settings):
            beside = self.compare(finals, number, own)
            if beside is not None and beside.ratio > 1 and self.compare(quiet, number, own) is None:
                found[number] = beside.ratio
        return tuple(self.contenders[number] for number in sorted(found, key=lambda number: -found[number]))

    def _expected_gain(self, rival: Comparison) -> float:
        """Expected gain of a rival over the present choice, as a share."""
        return expected_gain(rival, num_candidates=self.num_rivals)


def standing_of(
    contenders: Mapping[int, FinishedTrial],
    baseline: FinishedTrial | None,
    records: Sequence[FinalRecord],
    num_rivals: int,
) -> Standing:
    """The standing of some contenders by runs of any number of contenders."""
    own = tuple(record for record in records if record.number in contenders)
    return Standing(contenders=contenders, baseline=baseline, records=own, num_rivals=num_rivals)


def as_finals(records: Sequence[FinalRecord]) -> list[Final]:
    """Runs as figures to compare."""
    return [
        Final(
            candidate=record.number,
            round=record.round,
            samples_per_second=rate_of(record.result),
            peak_memory_bytes=record.result.peak_memory_bytes or 0,
            feasible=record.result.outcome is Outcome.OK,
            is_shared=record.result.is_live,
            is_device_bound=_is_device_bound(record.result),
        )
        for record in records
    ]


def thrashing(records: Sequence[FinalRecord]) -> set[int]:
    """Numbers of the contenders whose allocator thrashed at the cap in a round."""
    return {record.number for record in records if record.result.is_near_cap}


def _is_wide(gain: Comparison, round_s: float) -> bool:
    """Whether the interval of a gain is long, and another minute of rounds makes it shorter by a percent."""
    half = gain.noise_half
    if half <= max(WIDE, WIDE_SHARE * (1 - 1 / gain.ratio)):
        return False
    num_more = A_MINUTE_S / max(round_s, 1e-9)
    return half * (1 - math.sqrt(gain.num_rounds / (gain.num_rounds + num_more))) >= WORTH_A_ROUND


def _is_device_bound(result: TrialResult) -> bool:
    """Whether the device alone set the pace of the window, undisturbed, and the blocks of the window were alike.

    Of several ranks, a device that waits for another rank looks busy.
    """
    measurement, seen = result.measurement, result.surroundings
    if measurement is None or seen is None or seen.device_utilization is None or len(result.ranks) > 1:
        return False
    half = (measurement.high - measurement.low) / 2
    is_alike = half <= ALIKE_BLOCKS * measurement.samples_per_second
    return seen.device_utilization >= BUSY_DEVICE and is_alike and not seen.device_disturbances
