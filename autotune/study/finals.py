"""Runs the finals: the best few and the baseline once more, interleaved.

All published figures come from the finals. Each run has a process of its own. When two rounds of new processes do not
fit the time, trials or further rounds in the process of the trials take their place, with a longer interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.measure.paired import round_order
from autotune.model.events import FinalFinished, FinalsStarted, FinalStarted, OnEvent
from autotune.model.outcome import Outcome
from autotune.model.result import SWITCH, TrialResult
from autotune.search.history import FinishedTrial
from autotune.settings import Settings
from autotune.store.repository import Repository
from autotune.study.budget import LEAST_ROUNDS, MAX_ROUNDS, NUM_ROUNDS, ROUNDS_ALONE, Budget, LaterFinals
from autotune.study.final_choice import FinalsResult, choose, hidden_gain, without_runs
from autotune.study.final_contenders import Candidates
from autotune.study.final_runs import FinalRuns
from autotune.study.final_standing import Standing, standing_of
from autotune.study.measuring import Measuring
from autotune.study.stop import StopRequest
from autotune.study.trial_rounds import COUNTED_WORDS, PLAIN_WORDS, counted_trials, plainly_faster, rounds_of_trials
from autotune.units import format_seconds

LATE_LOOKS = 6
"""Rounds after which the finals look at the comparisons less often: each look is a chance to find a gain by luck."""
TOLD_OVERRUN_SHARE = 0.02
"""Share of the given time above which an overrun is told to the user."""
DOUBT_FACTOR = 2
"""Most rounds of doubtful finals, as a multiple of the planned rounds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rounds:
    """The rounds of the finals when the last one has ended."""

    running: dict[int, FinishedTrial]
    """Contenders of the last round."""
    num_planned: int
    """Rounds to measure, if the time allows; less when the rounds so far decided."""
    num_whole: int
    """Rounds that measured every contender still running."""
    num_late: int
    """Contenders dropped for want of time."""


class Finals:
    """Runs the finals of one study, and continues after the last whole round of a killed tuner."""

    def __init__(
        self,
        *,
        study: str,
        measuring: Measuring,
        repository: Repository,
        budget: Budget,
        stop: StopRequest,
        on_event: OnEvent,
        seed: int,
    ) -> None:
        self._study, self._measuring, self._repository = study, measuring, repository
        self._budget, self._stop, self._on_event, self._seed = budget, stop, on_event, seed
        self._runs = FinalRuns(repository, study)
        self._baseline: FinishedTrial | None = None
        self._num_rivals = 1
        """Contenders at the start of the finals, without the baseline."""
        self._is_shared = False
        """Whether the rounds run in the process of the trials."""
        self._is_cut_off = False
        """Whether a run was ended from outside, before the limit of its time."""
        self._announcement: FinalsStarted | None = None
        """The event to send before the first run of the finals; None when sent, or when no round is left."""
        self._num_without_runs = 0
        """Rounds before the first run: 1 where the trials count as the first round. Events do not count it."""

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
        trials, chosen = trials or {}, chosen or {}
        contenders = self._begin(finalists, baseline, trials)
        if not contenders:
            return None
        is_alike = self._is_shared or not any(result.is_live for result in trials.values())
        if is_alike:
            self._runs.add_trials(0, contenders, trials)
        num_planned = _num_planned(contenders, trials if is_alike else {})
        self._announcement = self._announced(contenders, num_planned, {**chosen, **trials})
        rounds = self._measure_rounds(contenders, num_planned)
        if rounds is None:
            return None
        if rounds.num_whole == 1 and not is_alike:
            rounds = replace(rounds, num_whole=1 + self._has_round_of_trials(contenders, trials))
        return self._answer(contenders, rounds, trials, chosen)

    def _begin(
        self, finalists: Sequence[FinishedTrial], baseline: FinishedTrial | None, trials: Mapping[int, TrialResult]
    ) -> dict[int, FinishedTrial]:
        """Chooses the process of the rounds, and the contenders, by number."""
        self._baseline, runs = baseline, self._runs
        runs.begin()
        candidates = Candidates(finalists=finalists, baseline=baseline, budget=self._budget, runs=runs)
        # Finals of the script's own settings alone have no answer, and the trials of a single rival are a round.
        has_answer = len({record.number for record in runs.earlier}) > 1 or (bool(runs.earlier) and not trials)
        if has_answer and not runs.present and not candidates.have_time():
            runs.count_earlier()  # The answer of the finals before the latest trials is better than none.
        contenders = candidates.contenders(is_chosen=not trials)
        able = candidates.able_to_share(contenders, trials, self._measuring.can_share)
        if able:
            self._is_shared = True
            self._budget.share_process()
            contenders = replace(candidates, finalists=able).contenders(is_chosen=False)
        known = {record.number for record in runs.every}
        own = {baseline.number} if baseline is not None else set()
        self._num_rivals = max(1, len((known | contenders.keys()) - own))
        return contenders

    def _announced(
        self, contenders: Mapping[int, FinishedTrial], num_planned: int, trials: Mapping[int, TrialResult]
    ) -> FinalsStarted:
        """The event that begins the finals."""
        num_left = sum(not self._runs.is_whole(index, contenders) for index in range(num_planned))
        of_trials = rounds_of_trials(self._runs.of(contenders), trials)
        self._num_without_runs = int(0 in of_trials)
        return FinalsStarted(
            numbers=tuple(contenders),
            num_rounds=num_left,
            is_shared=self._is_shared,
            num_done=max(0, num_planned - num_left - len(of_trials)),
        )

    def _measure_rounds(self, contenders: dict[int, FinishedTrial], num_planned: int) -> _Rounds | None:
        """Measures round after round until the winner is known or the time is spent; None when asked to stop before."""
        running, num_late, num_whole = dict(contenders), 0, 0
        for round_index in range(MAX_ROUNDS):
            running = self._standing(running).hopeful() if round_index else running
            able = self._standing(running).able()
            if self._runs.is_whole(round_index, able):
                running, num_whole = able, num_whole + 1
                continue
            if round_index >= num_planned and is_look(round_index):
                further = self._for_further_round(round_index, running, num_planned)
                if not further:
                    break
                running = further
            elif self._is_short(round_index, running):
                running = self._standing(running).in_doubt()
                if len(running) == 1:
                    num_planned = min(num_planned, round_index)  # Every other contender is slower: this was decided.
                    break
            able = self._standing(running).able()
            ahead = range(round_index, max(num_planned, round_index + 1))
            running = self._affordable(able, sum(not self._runs.is_whole(index, able) for index in ahead))
            num_late += len(able) - len(running)
            if not self._runs.is_whole(round_index, running) and not self._can_measure(running):
                break
            self._round(round_index, running, num_planned)
            num_whole += self._runs.is_whole(round_index, running)
            if self._stop.level:
                if num_whole < num_planned:
                    return None
                break
        return _Rounds(running=running, num_planned=num_planned, num_whole=num_whole, num_late=num_late)

    def _for_further_round(
        self, round_index: int, running: dict[int, FinishedTrial], num_planned: int
    ) -> dict[int, FinishedTrial]:
        """The contenders for a round beyond the planned ones; empty when the answer is known or no time is left."""
        if round_index < DOUBT_FACTOR * num_planned and self._is_doubtful(running):
            return running
        in_doubt = self._standing(running).in_doubt()
        return in_doubt if self._needs_more(in_doubt) else {}

    def _answer(
        self,
        contenders: dict[int, FinishedTrial],
        rounds: _Rounds,
        trials: Mapping[int, TrialResult],
        chosen: Mapping[int, TrialResult],
    ) -> FinalsResult | None:
        """The winner, and what is told of the rounds; None without a feasible run."""
        num_whole, running = rounds.num_whole, rounds.running
        is_known = bool(counted_trials(self._runs.of(contenders), chosen))
        of_trials = rounds_of_trials(self._runs.of(contenders), {**chosen, **trials})
        num_run = max(0, num_whole - len(of_trials))
        counts_trials = bool(trials and rounds_of_trials(self._runs.of(contenders), trials))
        num_planned = rounds.num_planned - (0 in of_trials)
        shortened = self._shortened(rounds.num_late, len(running), num_planned, num_run, counts_trials=counts_trials)
        plain_pair = self._count_plain_gain(contenders, running, chosen, num_whole) if not trials else {}
        running = plain_pair or running
        # A dropped contender has fewer rounds than an interval needs.
        has_runs = bool(self._runs.of(contenders))
        result = self._choice(running) if has_runs else without_runs(contenders, self._baseline)
        if result is None:
            return None
        is_compared = len(contenders) == 1 or num_whole >= LEAST_ROUNDS or bool(plain_pair)
        is_incomplete = is_compared and num_whole - is_known < rounds.num_planned
        hidden = hidden_gain(result, self._standing(running)) if is_incomplete else ""
        told = (*result.told, hidden) if hidden and hidden not in result.told else result.told
        if of_trials and num_run >= max(1, num_planned):  # With fewer rounds, `shortened` says it.
            told = (*told, COUNTED_WORDS)
        shortened += PLAIN_WORDS if plain_pair and result.comparison is not None else ""
        return replace(
            result,
            measured=frozenset(record.number for record in self._runs.every),
            is_compared=is_compared,
            is_open=bool(hidden),
            told=told,
            shortened=shortened,
        )

    def _standing(self, contenders: Mapping[int, FinishedTrial]) -> Standing:
        return standing_of(contenders, self._baseline, self._runs.present, self._num_rivals)

    def _choice(self, contenders: Mapping[int, FinishedTrial]) -> FinalsResult | None:
        """The winner by the runs so far; None without a feasible run."""
        return choose(self._standing(contenders), is_last=not self._budget.affords_rounds(1, contenders))

    def _count_plain_gain(
        self,
        contenders: dict[int, FinishedTrial],
        running: dict[int, FinishedTrial],
        chosen: Mapping[int, TrialResult],
        num_whole: int,
    ) -> dict[int, FinishedTrial]:
        """The pair with chosen trials as a round of its own, counted now or by an earlier session; empty without."""
        pair = {number: contenders[number] for number in counted_trials(self._runs.of(contenders), chosen)}
        if pair or self._is_shared or not 0 < num_whole < NUM_ROUNDS or self._has_gain(running):
            return pair
        plain = plainly_faster(self._standing(contenders), chosen, num_whole)
        return plain if plain and self._runs.add_trials(self._runs.next_round, plain, chosen) else {}

    def _has_gain(self, contenders: dict[int, FinishedTrial]) -> bool:
        """Whether the rounds so far make a contender faster than the script's own settings."""
        result, baseline = self._choice(contenders), self._baseline
        return result is not None and baseline is not None and result.winner.number != baseline.number

    def _has_round_of_trials(self, contenders: Mapping[int, FinishedTrial], trials: Mapping[int, TrialResult]) -> bool:
        """Whether the live trials count as a round: after the rounds begun, or by a session before."""
        if any(record.result.is_live for record in self._runs.of(contenders)):
            return True
        return self._runs.add_trials(self._runs.next_round, contenders, trials)

    def _can_measure(self, contenders: Mapping[int, FinishedTrial]) -> bool:
        """Whether a round fits the time."""
        if self._is_shared:
            return self._budget.affords_shared_rounds(1, contenders)
        return self._budget.affords_last_round(contenders)

    def _affordable(self, running: dict[int, FinishedTrial], num_rounds: int) -> dict[int, FinishedTrial]:
        """The contenders that go on; the slowest are dropped while the given number of rounds does not fit the time."""
        remaining, standing = dict(running), self._standing(running)
        while len(remaining) > 2 and not self._budget.affords_rounds(num_rounds, remaining):
            others = [n for n in remaining if self._baseline is None or n != self._baseline.number]
            del remaining[min(others, key=standing.latest_rate)]
        return remaining

    def _is_short(self, round_index: int, running: Mapping[int, FinishedTrial]) -> bool:
        """Whether a comparison exists, but no time for the rounds of contenders that are probably slower."""
        has_time = self._budget.affords_rounds(2 * NUM_ROUNDS, running)
        return round_index >= LEAST_ROUNDS and len(running) > 1 and not has_time

    def _needs_more(self, contenders: dict[int, FinishedTrial]) -> bool:
        """Whether the answer is open or wide, and another round can be afforded."""
        if not self._has_whole_baseline or len(contenders) < 2 or not self._budget.affords_rounds(1, contenders):
            return False
        return self._standing(contenders).is_open(self._budget.round_s(contenders))

    def _is_doubtful(self, running: dict[int, FinishedTrial]) -> bool:
        """Whether further rounds may settle a doubt: a ratio unlike the trials', or too few quiet rounds."""
        if not self._has_whole_baseline or not self._budget.affords_rounds(1, running):
            return False
        result = self._choice(running)
        return result is not None and bool(result.doubt or self._standing(running).waiting_for_quiet())

    @property
    def _has_whole_baseline(self) -> bool:
        """Whether the script's own settings were measured to the end of their trial."""
        return self._baseline is not None and self._baseline.outcome.is_complete

    def _shortened(self, num_late: int, num_kept: int, num_planned: int, num_whole: int, *, counts_trials: bool) -> str:
        """How the finals were cut short, as a sentence or two; empty when the finals are complete."""
        words = f"The time allowed only {num_kept} contenders to the last round." if num_late else ""
        if num_whole < num_planned:
            beside = "; the trials count as a further round" if counts_trials else ""
            rounds = f"The time allowed {num_whole} of {num_planned} rounds of finals{beside}."
            if self._is_cut_off:
                rounds = f"Runs were ended from outside this search: {num_whole} of {num_planned} rounds are whole."
            words = f"{words} {rounds}".strip()
        over_s = self._budget.spent_s - self._budget.total_s
        if over_s <= TOLD_OVERRUN_SHARE * self._budget.total_s:
            return words
        over = format_seconds(over_s)
        return f"{words} Even so the finals took {over} more.".strip()

    def _round(self, round_index: int, contenders: dict[int, FinishedTrial], num_planned: int) -> None:
        """Measures the contenders of a round in turns; ends early when a run is ended from outside."""
        done = self._runs.done(round_index, contenders)
        if done == contenders.keys():
            return
        if self._announcement is not None and self._announcement.num_rounds:
            self._on_event(self._announcement)
        self._announcement = None
        # All runs of a round must be from the same hours: a half round of an earlier session is run anew. Numbers with
        # an old run come first, so that the round stays a half round until all old runs are replaced.
        order = sorted(round_order(sorted(contenders), round_index, self._seed), key=lambda number: number not in done)
        num_later, num_needed = max(0, num_planned - round_index - 1), max(0, LEAST_ROUNDS - round_index - 1)
        for position, number in enumerate(order):
            if self._stop.level:
                return
            limit_s = self._budget.final_window_s([*order[position:], *num_later * order])
            self._on_event(FinalStarted(round=round_index - self._num_without_runs, number=number))
            needed = [*order[position + 1 :], *num_needed * order]
            later = LaterFinals(
                others_s=self._budget.round_s([other for other in needed if other != number]),
                num_alike=needed.count(number),
            )
            result = self._run(contenders[number].settings, limit_s, later)
            if result.outcome is Outcome.INTERRUPTED:
                self._is_cut_off = self._is_cut_off or self._budget.left_to_finals_s > 0
                return
            self._note_price(number, contenders[number].settings, result)
            self._runs.add(round_index, number, contenders[number].settings, result)
            self._repository.add_spent(self._study, self._budget.unsaved_s())
            told_round = round_index - self._num_without_runs
            self._on_event(FinalFinished(round=told_round, number=number, result=result))

    def _run(self, settings: Settings, window_limit_s: float, later: LaterFinals) -> TrialResult:
        return self._measuring.measure(
            settings, is_final=True, is_shared=self._is_shared, window_limit_s=window_limit_s, later=later
        )

    def _note_price(self, number: int, settings: Settings, result: TrialResult) -> None:
        """Tells the budget what a run took."""
        if result.measurement is None:
            return
        self._budget.runs.final_took(
            result.wall_s,
            window_s=result.measurement.window_s,
            number=number,
            settings=settings,
            is_live=result.is_live,
            switch_s=result.durations_s.get(SWITCH),
            left_out_s=result.left_out_s,
        )


def is_look(num_rounds: int) -> bool:
    """Whether the finals look at their comparisons after so many rounds: 3, 4, 5, 6, 8, 10, 12, 15, 18, 22, 27, 33."""
    look = LATE_LOOKS
    while look < num_rounds:
        look = round(1.2 * look + 0.5)
    return num_rounds <= LATE_LOOKS or look == num_rounds


def _num_planned(contenders: Mapping[int, FinishedTrial], trials: Mapping[int, TrialResult]) -> int:
    """Planned rounds: a single measured contender is compared with nothing, and needs no round beyond the trial."""
    if len(contenders) > 1:
        return NUM_ROUNDS
    return 1 if contenders.keys() <= trials.keys() else ROUNDS_ALONE
