"""Runs the finals: the best few and the baseline once more, interleaved.

All published figures come from the finals. Each run has a process of its own. When two rounds of new processes do not
fit the time, trials or further rounds in the process of the trials take their place, with a longer interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from autotune.measure.pair_interval import MOST_TYPICAL_SPREAD, TYPICAL_RUN_SPREAD, half_width
from autotune.measure.paired import (
    SHARED_ERROR,
    Comparison,
    Final,
    choose_winner,
    compare,
    expected_gain,
    round_order,
    unselected,
)
from autotune.model.events import FinalFinished, FinalsStarted, FinalStarted, OnEvent
from autotune.model.outcome import Outcome
from autotune.model.result import SWITCH, TrialResult
from autotune.model.search_result import Steadiness
from autotune.model.trial_records import FinalRecord, TrialRecord, finals_before_latest
from autotune.search.beside_load import is_suspect
from autotune.search.history import FinishedTrial, History
from autotune.search.prices import A_MINUTE_S
from autotune.settings import Precision, Settings, changes_for_load
from autotune.store.repository import Repository
from autotune.study import final_doubts
from autotune.study.budget import (
    LEAST_ROUNDS,
    MAX_ROUNDS,
    NUM_ROUNDS,
    ROUNDS_ALONE,
    Budget,
    LaterFinals,
)
from autotune.study.stop import StopRequest
from autotune.units import format_seconds

if TYPE_CHECKING:  # commands that only report import this module too, and must not load Optuna
    from autotune.study.trial_loop import TrialLoop

FINALS_SLACK = 1.25
"""Time for finals in new processes as a multiple of their expected time; with less, finals run in the process of the
trials. A round of YOLOv5 on an H200 took 47 s in place of 40 s, and the second round no longer fit."""
LATE_LOOKS = 6
"""Rounds after which the finals look at the comparisons less often: each look is a chance to find a gain by luck."""
UNSTEADY = 0.1
"""Spread of a finalist's rounds from which a steadier finalist wins a tie."""
TOLD_OVERRUN_SHARE = 0.02
"""Share of the given time above which an overrun is told to the user."""
CONFIDENCE = 0.95
"""Confidence of the interval of a published rate."""
DROP_CONFIDENCE = 0.95
"""Two-sided confidence from which a contender slower than the leader runs no more. An error costs a contender, and
never makes a false gain."""
LIKELY_CONFIDENCE = 0.9
"""Two-sided confidence from which the user is told that a contender without a proven gain is likely faster."""
LEAST_LIKELY_GAIN = 1.03
"""Smallest ratio to the script's own settings told as a likely gain."""
HIDDEN_GAIN = 1.1
"""Unproven gain from which finals that lack planned rounds are told as too short. A ResNet-50 on an H100 was 3.6x as
fast in the only round of new processes and 2.0x in the trials, and was told to have no gain."""
WORTH_A_ROUND = 0.01
"""Expected gain, or narrowing of an interval in a minute, from which further rounds are worth their time."""
DOUBT_FACTOR = 2
"""Most rounds of doubtful finals, as a multiple of the planned rounds."""
WIDE = 0.05
"""Half the width of an interval from which further rounds are considered."""
WIDE_SHARE = 0.1
"""Half the width of a gain's interval as a share of the gain, from which further rounds are worth their time."""
PLAIN_GAIN = 1.5
"""Smallest gain for chosen trials to count as a further round: in the trials, and in each of one or two rounds.
Choosing among trials raises a rate by a few percent, and not by half."""
PLAIN_AGREEMENT = 1.15
"""Largest ratio of the gain in the trials and the gain in the only round, whichever is larger. Two rounds and the
trials need not agree: their spread is part of the interval."""
PLAIN_SPREAD = 0.1
"""Largest half width of a chosen trial's interval, as a share of the rate, for the trial to count as a round."""
PLAIN_WORDS = f" The trials of these settings put the gain at {PLAIN_GAIN}x or more too, and count as one more round."
BUSY_DEVICE, ALIKE_BLOCKS = 0.9, 0.015
"""Least utilization of the device, and largest half width of a run's interval as a share of the rate, of a run in which
the device alone set the pace. On the recorded grids 91 of 92 runs with a utilization above 95 % are as narrow, and 3 of
316 runs below 80 %. A narrow interval alone says nothing: on shared cores such runs differ by 20 %."""
PRECISION_ORDER = (Precision.FP32, Precision.TF32, Precision.BF16, Precision.FP16)


@dataclass(frozen=True, kw_only=True, slots=True)
class FinalsResult:
    """The winner of the finals, compared with the baseline."""

    winner: FinishedTrial
    baseline: FinishedTrial | None
    comparison: Comparison | None
    """Winner against baseline; None when the baseline wins, or failed, or was not measured."""
    records: tuple[FinalRecord, ...]
    is_compared: bool = True
    """True when the rounds were enough to compare the contenders, or nothing had to be compared."""
    is_open: bool = False
    """True when planned rounds are missing, and in the others a contender was well ahead without a proven gain."""
    doubt: str = ""
    """Why the gain is in doubt, as sentences: trials of the same settings speak against it. Empty without a doubt."""
    beside_load: str = ""
    """The load beside the compared runs, in words; empty for quiet runs."""
    told: tuple[str, ...] = ()
    """Sentences on disturbed rounds, and on settings not published because they may help only beside other load."""
    shortened: str = ""
    """How the finals were cut short for want of time, as a sentence or two; empty when the finals are complete."""


class Finals:
    """Runs the finals of one study, and continues after the last whole round of a killed tuner."""

    def __init__(
        self,
        *,
        study: str,
        loop: TrialLoop,
        repository: Repository,
        budget: Budget,
        stop: StopRequest,
        on_event: OnEvent,
        seed: int,
    ) -> None:
        self._study, self._loop, self._repository = study, loop, repository
        self._budget, self._stop, self._on_event, self._seed = budget, stop, on_event, seed
        self._num_rivals = 1
        """Contenders at the start of the finals, without the baseline."""
        self._first = 0
        """Number of the rounds of earlier finals, which came before the latest trial."""
        self._is_shared = False
        """Whether the rounds run in the process of the trials."""
        self._is_cut_off = False
        """Whether a run was ended from outside, before the limit of its time."""
        self._read: tuple[FinalRecord, ...] | None = None
        """The stored runs of all finals of the study; None = read them again."""
        self._announcement: FinalsStarted | None = None
        """The event to send before the first run of the finals; None when sent, or when no round is left."""

    def run(
        self,
        finalists: Sequence[FinishedTrial],
        baseline: FinishedTrial | None,
        trials: Mapping[int, TrialResult] | None = None,
        chosen: Mapping[int, TrialResult] | None = None,
    ) -> FinalsResult | None:
        """Measures until the winner is known.

        Args:
            finalists: The best trials, the fastest first.
            baseline: The trial of the script's own settings.
            trials: Results of the trials themselves, by number, when no trial was chosen among several. A chosen trial
                looks faster than its settings are; without a choice the trials are as good as a round of finals. They
                count as the first round, and after a single round of finals as the second round where a trial had the
                process of another trial.
            chosen: Results of the trials, by number, whether chosen or not. Without `trials`, and with time for
                one round only, the results count as the second round, for gains of `PLAIN_GAIN` and more.

        Returns:
            None when the search was asked to stop before the winner was known, or no contender can be measured.
        """
        trials = trials or {}
        contenders = self._begin(finalists, baseline, trials)
        if not contenders:
            return None
        is_alike = self._is_shared or not any(result.is_live for result in trials.values())
        if is_alike:
            self._count_trials_as_round(0, contenders, trials)
        num_rounds = self._num_planned(contenders, trials if is_alike else {})
        num_left = sum(not self._is_whole(index, contenders) for index in range(num_rounds))
        of_trials = _rounds_of_trials(self._records(contenders), {**(chosen or {}), **trials})
        self._announcement = FinalsStarted(
            numbers=tuple(contenders),
            num_rounds=num_left,
            is_shared=self._is_shared,
            num_done=max(0, num_rounds - num_left - len(of_trials)),
        )
        running, num_late, num_whole = dict(contenders), 0, 0
        for round_index in range(MAX_ROUNDS):
            running = self._hopeful(running, baseline) if round_index else running
            able = self._able(running, baseline)
            if self._is_whole(round_index, able):
                running, num_whole = able, num_whole + 1
                continue
            if round_index >= num_rounds and is_look(round_index):
                in_doubt = self._in_doubt(running, baseline)
                is_again = round_index < DOUBT_FACTOR * num_rounds and self._is_doubtful(running, baseline)
                if not is_again and not self._needs_more(in_doubt, baseline):
                    break
                running = running if is_again else in_doubt
            elif self._is_short(round_index, running):
                running = self._in_doubt(running, baseline)
                if len(running) == 1:
                    num_rounds = min(num_rounds, round_index)  # Every other contender is slower: this was decided.
                    break
            able = self._able(running, baseline)
            ahead = range(round_index, max(num_rounds, round_index + 1))
            running = self._affordable(able, baseline, sum(not self._is_whole(index, able) for index in ahead))
            num_late += len(able) - len(running)
            if not self._is_whole(round_index, running) and not self._can_measure(running):
                break
            self._round(round_index, running, num_rounds)
            num_whole += self._is_whole(round_index, running)
            if self._stop.level:
                if num_whole < num_rounds:
                    return None
                break
        if num_whole == 1 and not is_alike:
            num_whole += self._has_round_of_trials(contenders, trials)
        is_known = bool(_counted_trials(self._records(contenders), chosen or {}))
        of_trials = _rounds_of_trials(self._records(contenders), {**(chosen or {}), **trials})
        num_run = max(0, num_whole - len(of_trials))
        shortened = self._shortened(num_late, len(running), num_rounds - (0 in of_trials), num_run)
        counted = self._counts_plain_gain(contenders, running, baseline, chosen or {}, num_whole) if not trials else {}
        running = counted or running
        # A dropped contender has fewer rounds than an interval needs.
        result = self._result(running, baseline) if self._records(contenders) else _without_runs(contenders, baseline)
        if result is None:
            return None
        is_compared = len(contenders) == 1 or num_whole >= LEAST_ROUNDS or bool(counted)
        hidden = self._hidden_gain(result, running) if is_compared and num_whole - is_known < num_rounds else ""
        told = (*result.told, hidden) if hidden and hidden not in result.told else result.told
        shortened += PLAIN_WORDS if counted and result.comparison is not None else ""
        return replace(result, is_compared=is_compared, is_open=bool(hidden), told=told, shortened=shortened)

    def _hidden_gain(self, result: FinalsResult, running: Mapping[int, FinishedTrial]) -> str:
        """A sentence on a contender well ahead of the script's own settings, without a proven gain; empty otherwise."""
        own = result.baseline
        if own is None or result.winner.number != own.number:
            return ""
        finals = self._finals(running, own)
        found = {number: self._compare(finals, number, own.number) for number in running if number != own.number}
        ahead = {number: one for number, one in found.items() if one is not None and one.ratio >= HIDDEN_GAIN}
        if not ahead:
            return ""
        number, best = max(ahead.items(), key=lambda one: one[1].ratio)
        return self._unproven(finals, own.number) or (
            f"Trial {number} was {best.ratio:.2f}x [{best.low:.2f}, {best.high:.2f}] as fast as yours in "
            f"{best.num_rounds} rounds of the finals, too few to tell."
        )

    def _counts_plain_gain(
        self,
        contenders: dict[int, FinishedTrial],
        running: dict[int, FinishedTrial],
        baseline: FinishedTrial | None,
        chosen: Mapping[int, TrialResult],
        num_whole: int,
    ) -> dict[int, FinishedTrial]:
        """The pair with chosen trials as a round of its own, counted now or by an earlier session; empty without."""
        records = self._records(contenders)
        pair = {number: contenders[number] for number in _counted_trials(records, chosen)}
        if pair or self._is_shared or not 0 < num_whole < NUM_ROUNDS or self._has_gain(running, baseline):
            return pair
        plain = self._plainly_faster(contenders, baseline, chosen, num_whole)
        next_round = 1 + max(record.round for record in records)
        return plain if plain and self._count_trials_as_round(next_round, plain, chosen) else {}

    def _begin(
        self, finalists: Sequence[FinishedTrial], baseline: FinishedTrial | None, trials: Mapping[int, TrialResult]
    ) -> dict[int, FinishedTrial]:
        """Chooses the process of the rounds, and the contenders, by number."""
        self._read = None
        self._first = self._first_round()
        # Finals of the script's own settings alone have no answer, and the trials of a single rival are a round.
        has_answer = len({record.number for record in self._stored() if record.round < self._first}) > 1 or not trials
        if self._first and has_answer and not self._of_these_finals() and not self._has_time(finalists, baseline):
            self._first = 0  # The answer of the finals before the latest trials is better than none.
        contenders = self._contenders(finalists, baseline, is_chosen=not trials)
        sharing = self._sharing(finalists, contenders, baseline, trials)
        if sharing:
            self._is_shared = True
            self._budget.share_process()
            contenders = self._contenders(sharing, baseline, is_chosen=False)
        known = {record.number for record in self._stored()}
        own = {baseline.number} if baseline is not None else set()
        self._num_rivals = max(1, len((known | contenders.keys()) - own))
        return contenders

    def _contenders(
        self, finalists: Sequence[FinishedTrial], baseline: FinishedTrial | None, *, is_chosen: bool
    ) -> dict[int, FinishedTrial]:
        """The baseline and the best trials for which the time suffices, by number.

        Where the fewest rounds of the best trial no longer fit, as after a long compilation, the best trial with fewest
        rounds that do fit takes the place: a verified gain is worth more than an unverified larger gain. For the same
        reason a single contender is above suspicion of gains from other load, if possible.

        A baseline whose trial ended as too slow to win is measured too: without it nothing can be published.
        """
        best = list(finalists[: self._budget.affordable_finalists()])
        own = {baseline.number: baseline} if baseline is not None and baseline.outcome.is_complete else {}
        begun = self._begun(finalists, own, num_wanted=len(best))
        if begun:
            best = begun
        elif len(best) == 1 and own and is_chosen:
            sound = [trial for trial in finalists if not is_suspect(trial, baseline)] or finalists
            best = [trial for trial in sound if self._budget.affords_least_rounds((trial.number, *own))][:1] or best
        return {trial.number: trial for trial in best} | own

    def _begun(
        self, finalists: Sequence[FinishedTrial], own: Mapping[int, FinishedTrial], *, num_wanted: int
    ) -> list[FinishedTrial]:
        """The rivals in the rounds of an earlier session, the fastest first; empty before a run of a rival.

        The latest round may be half done, and the round before has all who were still running. A first round that may
        be half done is filled up to the wanted number.
        """
        records = self._of_these_finals()
        latest = max((record.round for record in records), default=0)
        running = {record.number for record in records if record.round >= latest - 1} - own.keys()
        begun = [trial for trial in finalists if trial.number in running]
        if not begun or latest:
            return begun
        others = [trial for trial in finalists if trial.number not in running and trial.number not in own]
        return begun + others[: max(0, num_wanted - len(begun))]

    def _has_time(self, finalists: Sequence[FinishedTrial], baseline: FinishedTrial | None) -> bool:
        """Whether the fewest rounds of the baseline and a finalist fit the time."""
        own = [baseline.number] if baseline is not None else []
        return any(self._budget.affords_least_rounds((trial.number, *own)) for trial in finalists)

    def _first_round(self) -> int:
        """The round after all rounds before the latest trial: earlier finals had other contenders to choose from."""
        before = finals_before_latest(self._repository.trials(self._study), self._stored())
        return 1 + max((final.round for final in before), default=-1)

    def _num_planned(self, contenders: Mapping[int, FinishedTrial], trials: Mapping[int, TrialResult]) -> int:
        """Planned rounds: a single measured contender is compared with nothing, and needs no round beyond the trial."""
        if len(contenders) > 1:
            return NUM_ROUNDS
        return 1 if contenders.keys() <= trials.keys() else ROUNDS_ALONE

    def _sharing(
        self,
        finalists: Sequence[FinishedTrial],
        contenders: Mapping[int, FinishedTrial],
        baseline: FinishedTrial | None,
        trials: Mapping[int, TrialResult],
    ) -> list[FinishedTrial]:
        """The finalists for rounds in one process, the fastest first; empty where new processes are better or needed.

        New processes are better when the time suffices for FINALS_SLACK times their expected time. One round of new
        processes is enough where the trials count as the other.
        """
        records, has_trials = self._records(dict(contenders)), contenders.keys() <= trials.keys()
        is_begun = not all(record.result.is_live for record in records)
        if len(contenders) < 2 or baseline is None or is_begun:
            return []
        best = finalists[0]
        pair = (best.number, baseline.number)
        if self._budget.affords_least_rounds(pair, slack=FINALS_SLACK):
            return []
        if has_trials and self._budget.affords_last_round(contenders):
            return []
        num_rounds = LEAST_ROUNDS - 1 if has_trials else LEAST_ROUNDS
        if not self._loop.can_share(baseline.settings):
            return []
        able = [
            trial
            for trial in finalists
            if self._budget.affords_shared_rounds(num_rounds, (trial.number, baseline.number))
            and self._loop.can_share(trial.settings)
        ]
        # Rounds of the fastest trial that only just fit are worth more than certain rounds of a slower one.
        return able if best in able or not self._budget.affords_least_rounds(pair) else []

    def _can_measure(self, contenders: Mapping[int, FinishedTrial]) -> bool:
        """Whether a round fits the time."""
        if self._is_shared:
            return self._budget.affords_shared_rounds(1, contenders)
        return self._budget.affords_last_round(contenders)

    def _has_round_of_trials(self, contenders: Mapping[int, FinishedTrial], trials: Mapping[int, TrialResult]) -> bool:
        """Whether the live trials count as a round: after the rounds begun, or by a session before."""
        records = self._records(dict(contenders))
        if any(record.result.is_live for record in records):
            return True
        return self._count_trials_as_round(1 + max(record.round for record in records), contenders, trials)

    def _has_gain(self, contenders: dict[int, FinishedTrial], baseline: FinishedTrial | None) -> bool:
        """Whether the rounds so far make a contender faster than the script's own settings."""
        result = self._result(contenders, baseline)
        return result is not None and baseline is not None and result.winner.number != baseline.number

    def _plainly_faster(
        self,
        contenders: Mapping[int, FinishedTrial],
        baseline: FinishedTrial | None,
        chosen: Mapping[int, TrialResult],
        num_rounds: int,
    ) -> dict[int, FinishedTrial]:
        """The baseline and the fastest contender, if the rounds and the trials say the same of a plain gain.

        After a single round both gains must agree. After two rounds each gain must be plain; the interval over all of
        them decides.
        """
        rates: dict[int, dict[int, float]] = {}
        failed: set[int] = set()
        for record in self._records(dict(contenders)):
            if record.result.outcome is Outcome.OK:
                rates.setdefault(record.number, {})[record.round] = _rate(record.result)
            else:
                failed.add(record.number)
        own = rates.pop(baseline.number, {}) if baseline is not None else {}
        common = {number: own.keys() & of_one.keys() for number, of_one in rates.items() if number not in failed}
        gains = {n: [rates[n][r] / own[r] for r in rounds] for n, rounds in common.items() if len(rounds) == num_rounds}
        if baseline is None or baseline.number in failed or not gains:
            return {}
        number = max(gains, key=lambda candidate: math.prod(gains[candidate]))
        pair = {number: contenders[number], baseline.number: baseline}
        if not pair.keys() <= chosen.keys() or not all(map(_is_steady, pair.values())):
            return {}
        in_trials = _rate(chosen[number]), _rate(chosen[baseline.number])
        if not all(in_trials):
            return {}
        every = sorted((*gains[number], in_trials[0] / in_trials[1]))
        agrees = num_rounds > 1 or every[-1] <= PLAIN_AGREEMENT * every[0]
        return pair if every[0] >= PLAIN_GAIN and agrees else {}

    def _count_trials_as_round(
        self, round_index: int, contenders: Mapping[int, FinishedTrial], trials: Mapping[int, TrialResult]
    ) -> bool:
        """Records the trials as a round, unless a run of the round exists already or a result is missing."""
        is_known = bool(self._done(round_index, dict(contenders)))
        if is_known or not contenders.keys() <= trials.keys():
            return False
        for number, trial in contenders.items():
            record = FinalRecord(
                round=self._first + round_index,
                number=number,
                settings=trial.settings,
                result=trials[number],
                finished_at=datetime.now(UTC),
            )
            self._store(record)
        return True

    def _is_whole(self, round_index: int, contenders: dict[int, FinishedTrial]) -> bool:
        """Whether every contender has been measured in a round."""
        return self._done(round_index, contenders) == contenders.keys()

    def _able(self, running: dict[int, FinishedTrial], baseline: FinishedTrial | None) -> dict[int, FinishedTrial]:
        """The contenders still able to win: a contender that failed in a round need not run again.

        The script's own settings stay in any case, and all contenders stay when every contender has failed.
        """
        failed = {record.number for record in self._records(running) if record.result.outcome is not Outcome.OK}
        failed -= {baseline.number} if baseline is not None else set()
        return {number: trial for number, trial in running.items() if number not in failed} or running

    def _hopeful(self, running: dict[int, FinishedTrial], baseline: FinishedTrial | None) -> dict[int, FinishedTrial]:
        """The contenders without those slower than the script's own settings, and than the leader by `PLAIN_GAIN`.

        Both must hold in every round, the latter in the trials too. Most such contenders are the settings of an expert,
        which every finals measure.
        """
        rates: dict[int, dict[int, float]] = {}
        for record in self._records(running):
            rates.setdefault(record.number, {})[record.round] = _rate(record.result)
        leader = max(rates, key=lambda number: fmean(rates[number].values()), default=None)
        if leader is None or baseline is None or baseline.number not in rates:
            return running

        def is_hopeless(number: int) -> bool:
            own, best, scripts = rates.get(number, {}), rates[leader], rates[baseline.number]
            rounds = [index for index in own.keys() & best.keys() & scripts.keys() if own[index]]
            rate = running[number].samples_per_second or math.inf
            in_trials = (running[leader].samples_per_second or 0.0) / rate
            is_far = min([in_trials, *(best[index] / own[index] for index in rounds)]) >= PLAIN_GAIN
            return bool(rounds) and is_far and all(own[index] < scripts[index] for index in rounds)

        hopeful = {n: trial for n, trial in running.items() if n == baseline.number or not is_hopeless(n)}
        return hopeful if len(hopeful) > 1 else running  # A comparison takes two rounds of two.

    def _affordable(
        self, running: dict[int, FinishedTrial], baseline: FinishedTrial | None, num_rounds: int
    ) -> dict[int, FinishedTrial]:
        """The contenders that go on; the slowest are dropped while the given number of rounds does not fit the time."""
        remaining = dict(running)
        while len(remaining) > 2 and not self._budget.affords_rounds(num_rounds, remaining):
            others = [number for number in remaining if baseline is None or number != baseline.number]
            del remaining[min(others, key=lambda number: self._latest_rate(remaining[number]))]
        return remaining

    def _latest_rate(self, trial: FinishedTrial) -> float:
        """Mean rate of a contender's finals, in samples per second; before the first final, the rate of the trial."""
        rates = [_rate(record.result) for record in self._records({trial.number: trial})]
        return sum(rates) / len(rates) if rates else trial.samples_per_second or 0.0

    def _shortened(self, num_late: int, num_kept: int, num_planned: int, num_whole: int) -> str:
        words = f"The time allowed only {num_kept} contenders to the last round." if num_late else ""
        if num_whole < num_planned:
            rounds = f"The time allowed {num_whole} of {num_planned} rounds of finals."
            if self._is_cut_off:
                rounds = f"Runs were ended from outside this search: {num_whole} of {num_planned} rounds are whole."
            words = f"{words} {rounds}".strip()
        over_s = self._budget.spent_s - self._budget.total_s
        if over_s <= TOLD_OVERRUN_SHARE * self._budget.total_s:
            return words
        over = format_seconds(over_s)
        return f"{words} Even so the finals took {over} more.".strip()

    def _round(self, round_index: int, contenders: dict[int, FinishedTrial], num_rounds: int) -> None:
        done = self._done(round_index, contenders)
        if done == contenders.keys():
            return
        # All runs of a round must be from the same hours: a half round of an earlier session is run anew. Numbers with
        # an old run come first, so that the round stays a half round until all old runs are replaced.
        if self._announcement is not None and self._announcement.num_rounds:
            self._on_event(self._announcement)
        self._announcement = None
        order = sorted(round_order(sorted(contenders), round_index, self._seed), key=lambda number: number not in done)
        num_later, num_needed = max(0, num_rounds - round_index - 1), max(0, LEAST_ROUNDS - round_index - 1)
        for position, number in enumerate(order):
            if self._stop.level:
                return
            limit_s = self._budget.final_window_s([*order[position:], *num_later * order])
            self._on_event(FinalStarted(round=round_index, number=number))
            needed = [*order[position + 1 :], *num_needed * order]
            later = LaterFinals(
                others_s=self._budget.round_s([other for other in needed if other != number]),
                num_alike=needed.count(number),
            )
            result = self._loop.measure(
                contenders[number].settings,
                is_final=True,
                is_shared=self._is_shared,
                window_limit_s=limit_s,
                later=later,
            )
            if result.outcome is Outcome.INTERRUPTED:
                self._is_cut_off = self._is_cut_off or self._budget.left_to_finals_s > 0
                return
            if result.measurement is not None:
                self._budget.runs.final_took(
                    result.wall_s,
                    window_s=result.measurement.window_s,
                    number=number,
                    settings=contenders[number].settings,
                    is_live=result.is_live,
                    switch_s=result.durations_s.get(SWITCH),
                    left_out_s=result.left_out_s,
                )
            record = FinalRecord(
                round=self._first + round_index,
                number=number,
                settings=contenders[number].settings,
                result=result,
                finished_at=datetime.now(UTC),
            )
            self._store(record)
            self._repository.add_spent(self._study, self._budget.unsaved_s())
            self._on_event(FinalFinished(round=round_index, number=number, result=result))

    def _done(self, round_index: int, contenders: dict[int, FinishedTrial]) -> set[int]:
        """The numbers of the contenders measured in a round."""
        return {record.number for record in self._records(contenders) if record.round == round_index}

    def _records(self, contenders: dict[int, FinishedTrial]) -> tuple[FinalRecord, ...]:
        return tuple(record for record in self._of_these_finals() if record.number in contenders)

    def _of_these_finals(self) -> tuple[FinalRecord, ...]:
        """The runs of these finals, with rounds from 0."""
        records = self._stored()
        if not self._first:
            return records
        return tuple(replace(each, round=each.round - self._first) for each in records if each.round >= self._first)

    def _stored(self) -> tuple[FinalRecord, ...]:
        """The runs of all finals of the study with those of earlier sessions, by round and time of the end.

        The database is read again after each run of these finals. No other tuner of a study measures finals meanwhile.
        """
        if self._read is None:
            self._read = self._repository.finals(self._study)
        return self._read

    def _store(self, record: FinalRecord) -> None:
        self._repository.record_final(self._study, record)
        self._read = None

    def _is_short(self, round_index: int, running: Mapping[int, FinishedTrial]) -> bool:
        """Whether a comparison exists, but no time for the rounds of contenders that are probably slower."""
        has_time = self._budget.affords_rounds(2 * NUM_ROUNDS, running)
        return round_index >= LEAST_ROUNDS and len(running) > 1 and not has_time

    def _in_doubt(self, running: dict[int, FinishedTrial], baseline: FinishedTrial | None) -> dict[int, FinishedTrial]:
        """The contenders for further rounds: all but those probably slower than the leader, and the baseline."""
        records = self._records(running)
        finals, calm = self._finals(running, baseline), running.keys() - _thrashing(records)
        means = {number: self._latest_rate(running[number]) for number in calm or running}
        leader = max(means, key=lambda number: means[number])
        against = {
            number: self._compare(finals, leader, number, confidence=DROP_CONFIDENCE)
            for number in running
            if number != leader
        }
        slower = {number for number, comparison in against.items() if comparison is not None and comparison.is_gain}
        kept = {leader, *([baseline.number] if baseline is not None else [])}
        return {number: trial for number, trial in running.items() if number in kept or number not in slower}

    def _needs_more(self, contenders: dict[int, FinishedTrial], baseline: FinishedTrial | None) -> bool:
        """Whether the answer is open or wide, and another round can be afforded.

        Open: a contender may be faster than the present choice, by more than a percent as far as expected. Wide: a long
        interval of the gain, which a minute of rounds narrows by a percent or more.
        """
        if baseline is None or not baseline.outcome.is_complete or len(contenders) < 2:
            return False
        if not self._budget.affords_rounds(1, contenders):
            return False
        finals, own = self._finals(contenders, baseline), baseline.number
        ratios = {number: self._compare(finals, number, own) for number in contenders if number != own}
        known = {number: comparison for number, comparison in ratios.items() if comparison is not None}
        gains = [number for number, comparison in known.items() if comparison.is_gain]
        choice = max(gains, key=lambda number: known[number].ratio, default=own)
        rivals = [self._compare(finals, number, choice) for number in known if number != choice]
        if any(rival is not None and self._still_open(rival) >= WORTH_A_ROUND for rival in rivals):
            return True
        return choice != own and self._is_wide(known[choice], contenders)

    def _still_open(self, rival: Comparison) -> float:
        """Expected gain of a rival over the present choice, as a share."""
        return expected_gain(rival, num_candidates=self._num_rivals)

    def _is_wide(self, gain: Comparison, contenders: Mapping[int, FinishedTrial]) -> bool:
        """Whether the interval of a gain is long, and another minute of rounds makes it shorter by a percent."""
        half = gain.noise_half
        if half <= max(WIDE, WIDE_SHARE * (1 - 1 / gain.ratio)):
            return False
        num_more = A_MINUTE_S / max(self._budget.round_s(contenders), 1e-9)
        return half * (1 - math.sqrt(gain.num_rounds / (gain.num_rounds + num_more))) >= WORTH_A_ROUND

    def _compare(
        self, finals: Sequence[Final], candidate: int, against: int, *, confidence: float | None = None
    ) -> Comparison | None:
        feasible = [final for final in finals if final.feasible]
        try:
            return compare(feasible, candidate, against, num_candidates=self._num_rivals, confidence=confidence)
        except ValueError:
            return None

    def _result(self, contenders: dict[int, FinishedTrial], baseline: FinishedTrial | None) -> FinalsResult | None:
        records = self._records(contenders)
        finals = self._finals(contenders, baseline) if fits_all(records, baseline) else _as_finals(records)
        if not any(final.feasible for final in finals):
            return None
        numbers = {final.candidate for final in finals}
        against = baseline.number if baseline is not None and baseline.number in numbers else None
        if against is not None and fits(records, against):
            finals = _without_failures(finals, against)
        if against is None or numbers == {final.candidate for final in finals if not final.feasible}:
            number = _fastest(finals, against)
            return FinalsResult(winner=contenders[number], baseline=baseline, comparison=None, records=records)
        number, comparisons = _winner(
            finals,
            against,
            contenders,
            records,
            self._num_rivals,
            is_last=not self._budget.affords_rounds(1, contenders),
        )
        if number not in comparisons and fits(records, against):
            number = against  # The script's own settings failed in a round: the gain over the script is unknown.
        comparison = comparisons.get(number) if number != against else None
        winner, told = contenders[number], [final_doubts.shared_words(records), final_doubts.disturbed_words(records)]
        told += [
            final_doubts.failure_words(records, against),
            *self._taken_back(contenders, contenders[against], records),
        ]
        told += [self._unproven(finals, against)] if number == against else []
        is_gain = comparison is not None and comparison.is_gain
        return FinalsResult(
            winner=winner,
            baseline=baseline,
            comparison=comparison,
            records=records,
            doubt=self._contradiction(comparison, winner, contenders[against], records),
            beside_load=final_doubts.load_words(final_doubts.counted(records), {number, against}) if is_gain else "",
            told=tuple(filter(None, told)),
        )

    def _finals(self, contenders: Mapping[int, FinishedTrial], baseline: FinishedTrial | None) -> list[Final]:
        """The runs that count; suspects of gains from other load count in quiet rounds alone."""
        records = final_doubts.counted(self._records(dict(contenders)))
        if baseline is None:
            return _as_finals(records)
        suspected = final_doubts.suspects(contenders, baseline.settings)
        return _as_finals(final_doubts.without_loaded(records, suspected, baseline.number))

    def _is_doubtful(self, running: dict[int, FinishedTrial], baseline: FinishedTrial | None) -> bool:
        """Whether further rounds may settle a doubt: a ratio unlike the trials', or too few quiet rounds."""
        if baseline is None or not baseline.outcome.is_complete or not self._budget.affords_rounds(1, running):
            return False
        result = self._result(running, baseline)
        return result is not None and bool(result.doubt or self._waiting_for_quiet(running, baseline))

    def _waiting_for_quiet(
        self, contenders: Mapping[int, FinishedTrial], baseline: FinishedTrial
    ) -> tuple[FinishedTrial, ...]:
        """Suspects with too few quiet rounds that look faster than the script's own settings, the fastest first."""
        records = self._records(dict(contenders))
        finals = _as_finals(records)
        quiet = self._finals(contenders, baseline)
        found = {}
        for number in final_doubts.suspects(contenders, baseline.settings):
            beside = self._compare(finals, number, baseline.number)
            if beside is not None and beside.ratio > 1 and self._compare(quiet, number, baseline.number) is None:
                found[number] = beside.ratio
        return tuple(contenders[number] for number in sorted(found, key=lambda number: -found[number]))

    def _taken_back(
        self,
        contenders: Mapping[int, FinishedTrial],
        baseline: FinishedTrial,
        records: Sequence[FinalRecord],
    ) -> list[str]:
        """Sentences on settings that were faster beside other load, and are not published."""
        sentences = []
        for trial in self._waiting_for_quiet(contenders, baseline):
            beside = self._compare(_as_finals(records), trial.number, baseline.number)
            changes = ", ".join(changes_for_load(trial.settings, baseline.settings))
            if beside is not None:
                sentences.append(
                    f"Trial {trial.number} was {beside.ratio:.2f}x as fast as yours beside the load of others. Its "
                    f"{changes} may help only there, and no quiet moment came to compare: it is not published."
                )
        return sentences

    def _unproven(self, finals: Sequence[Final], against: int) -> str:
        """A sentence on the contender that is likely faster without a proven gain; empty without such a contender."""
        likely = {}
        for number in {final.candidate for final in finals} - {against}:
            found = self._compare(finals, number, against)
            narrow = self._compare(finals, number, against, confidence=LIKELY_CONFIDENCE)
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

    @staticmethod
    def _contradiction(
        comparison: Comparison | None, winner: FinishedTrial, baseline: FinishedTrial, records: Sequence[FinalRecord]
    ) -> str:
        if comparison is None or not comparison.is_gain:
            return ""
        return final_doubts.contradiction(comparison, winner, baseline, final_doubts.counted(records))


def _is_steady(trial: FinishedTrial) -> bool:
    """Whether a trial was measured undisturbed, and with a narrow interval."""
    half = trial.half_width_ratio
    return not trial.is_disturbed and half is not None and half <= PLAIN_SPREAD


def _is_of_trial(result: TrialResult, trial: TrialResult | None) -> bool:
    """Whether the result of a final is the result of the trial itself, which counts as a round."""
    return trial is not None and (result.measurement, result.wall_s) == (trial.measurement, trial.wall_s)


def _rounds_of_trials(records: Sequence[FinalRecord], trials: Mapping[int, TrialResult]) -> set[int]:
    """The rounds that are the trials themselves, by number of the round."""
    others = {record.round for record in records if not _is_of_trial(record.result, trials.get(record.number))}
    return {record.round for record in records} - others


def _counted_trials(records: Sequence[FinalRecord], chosen: Mapping[int, TrialResult]) -> list[int]:
    """The contenders with a round of trials in place of runs of their own, after rounds of runs; empty without one."""
    by_round: dict[int, dict[int, bool]] = {}
    for record in records:
        is_trial = _is_of_trial(record.result, chosen.get(record.number))
        by_round.setdefault(record.round, {})[record.number] = is_trial
    of_trials = [list(found) for found in by_round.values() if len(found) > 1 and all(found.values())]
    return of_trials[0] if len(of_trials) == 1 < len(by_round) else []


def fits_all(records: Sequence[FinalRecord], baseline: FinishedTrial | None) -> bool:
    """Whether the script's own settings can be compared with: every final of theirs was feasible."""
    return baseline is not None and fits(records, baseline.number)


def is_look(num_rounds: int) -> bool:
    """Whether the finals look at their comparisons after so many rounds: 3, 4, 5, 6, 8, 10, 12, 15, 18, 22, 27, 33."""
    look = LATE_LOOKS
    while look < num_rounds:
        look = round(1.2 * look + 0.5)
    return num_rounds <= LATE_LOOKS or look == num_rounds


def _without_runs(contenders: Mapping[int, FinishedTrial], baseline: FinishedTrial | None) -> FinalsResult:
    """The result when no run fitted the time: the script's own settings, or the best trial when these do not fit."""
    number = baseline.number if baseline is not None and baseline.number in contenders else next(iter(contenders))
    return FinalsResult(winner=contenders[number], baseline=baseline, comparison=None, records=())


def _winner(
    finals: Sequence[Final],
    against: int,
    contenders: dict[int, FinishedTrial],
    records: Sequence[FinalRecord],
    num_rivals: int,
    *,
    is_last: bool,
) -> tuple[int, dict[int, Comparison]]:
    """The winner and all comparisons; a contender that thrashed at the cap wins only without a gain elsewhere."""

    def tie_key(number: int) -> tuple[float, ...]:
        return _tie_key(contenders[number], records, contenders[against].settings)

    def chosen_of(some: Sequence[Final]) -> tuple[int, dict[int, Comparison]]:
        number, comparisons = choose_winner(some, against, tie_key, num_candidates=num_rivals, is_last=is_last)
        if number in comparisons and number != against:
            comparisons[number] = unselected(comparisons[number], some, number, against, tie_key)
        return number, comparisons

    thrashing = _thrashing(records) - {against}
    if thrashing:
        number, comparisons = chosen_of([final for final in finals if final.candidate not in thrashing])
        if number != against:
            return number, comparisons
    return chosen_of(finals)


def _thrashing(records: Sequence[FinalRecord]) -> set[int]:
    """Numbers of the contenders whose allocator thrashed at the cap in a round."""
    return {record.number for record in records if record.result.is_near_cap}


def _as_finals(records: Sequence[FinalRecord]) -> list[Final]:
    return [
        Final(
            candidate=record.number,
            round=record.round,
            samples_per_second=_rate(record.result),
            peak_memory_bytes=record.result.peak_memory_bytes or 0,
            feasible=record.result.outcome is Outcome.OK,
            is_shared=record.result.is_live,
            is_device_bound=_is_device_bound(record.result),
        )
        for record in records
    ]


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


def _without_failures(finals: list[Final], own: int) -> list[Final]:
    """The runs without failed runs of the script's own settings in further rounds.

    The planned rounds tell whether the script's own settings can be compared with; a later failure takes nothing back.
    """
    return [final for final in finals if final.feasible or final.candidate != own or final.round < NUM_ROUNDS]


def _rate(result: TrialResult) -> float:
    return result.measurement.samples_per_second if result.measurement is not None else 0.0


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


def _tie_key(trial: FinishedTrial, records: Sequence[FinalRecord], own: Settings) -> tuple[float, ...]:
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


def fits(records: Sequence[FinalRecord], number: int) -> bool:
    """Whether a finalist stayed within the memory limits in every final."""
    return not any(record.result.outcome.is_infeasible for record in records if record.number == number)


def published_rate(records: Sequence[FinalRecord], number: int) -> tuple[float, tuple[float, float]] | None:
    """Geometric mean of a finalist's rates over the rounds, in samples per second, with the interval at 95 %.

    None when the finalist was never measured. The interval knows the spread of a finalist's own rounds and of the other
    finalists' rounds (`autotune.measure.pair_interval`), and allows for rounds in the process of other runs as a
    comparison does. With a single round, the interval is the round's own.
    """
    results = [record.result for record in records if record.number == number]
    measured = [result.measurement for result in results if result.measurement is not None]
    if not measured:
        return None
    if len(measured) == 1:
        return measured[0].samples_per_second, (measured[0].low, measured[0].high)
    rates = [math.log(measurement.samples_per_second) for measurement in measured]
    mean, half = fmean(rates), half_width(rates, _typical_spread(records, number), CONFIDENCE)
    half += SHARED_ERROR * fmean(result.is_live for result in results if result.measurement is not None)
    return math.exp(mean), (math.exp(mean - half), math.exp(mean + half))


def _typical_spread(records: Sequence[FinalRecord], number: int) -> float:
    """Typical spread of the logarithm of a rate on this machine, by the runs of all finalists but the given one."""
    others: dict[int, list[float]] = {}
    for record in records:
        if record.number != number and record.result.measurement is not None:
            others.setdefault(record.number, []).append(math.log(record.result.measurement.samples_per_second))
    spreads = [stdev(rates) for rates in others.values() if len(rates) > 1]
    return max(TYPICAL_RUN_SPREAD, min(MOST_TYPICAL_SPREAD, max(spreads, default=0.0)))
