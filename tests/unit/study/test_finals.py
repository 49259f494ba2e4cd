"""The finals on a clock that only measuring moves: how they fit into what is left of the time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from autotune.measure.pair_interval import TYPICAL_RUN_SPREAD
from autotune.measure.paired import SHARED_ERROR
from autotune.model.events import Event, FinalsStarted
from autotune.model.outcome import Outcome
from autotune.model.result import Measurement, StartKind, TrialResult
from autotune.model.search_result import Status
from autotune.model.surroundings import Surroundings
from autotune.model.trial_records import FinalRecord, TrialRecord
from autotune.search.history import FinishedTrial, History
from autotune.settings import Precision, Settings
from autotune.study.budget import FINAL_WINDOW_S, NUM_ROUNDS, Budget, LaterFinals
from autotune.study.final_choice import FinalsResult, tie_key
from autotune.study.final_rates import NORMAL_95, published_rate
from autotune.study.finals import Finals
from autotune.study.measuring import NO_LATER_FINALS
from autotune.study.notes import notes_of
from autotune.study.publish import status_of
from autotune.study.stop import StopRequest
from autotune.study.trial_rounds import results_of_trials, results_without_choice
from tests.unit.grids import ok
from tests.unit.runner.samples import rank

RATES = {0: 100.0, 1: 150.0, 2: 148.0, 3: 120.0, 4: 70.0}
"""Trial 0 is the baseline."""
LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass
class Bench:
    """A search whose trials are over, with so much time for the finals."""

    total_s: float
    trial_s: float = 10.0
    """What a trial took when the finals were planned, of it two seconds of window."""
    around_s: float = 8.0
    """What really goes with a window in the finals."""
    utilization: float | None = None
    """Share of the time in which the device works."""
    half_width_ratio: float = 0.02
    """Half the interval of a run, as a share of its rate."""
    num_ranks: int = 1
    now_s: float = 0.0
    records: list[FinalRecord] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)
    later: list[LaterFinals] = field(default_factory=list)
    starts_s: dict[int, float] = field(default_factory=dict)
    """What really goes with a window in the finals of a trial, where it is not `around_s`."""
    slower_from: tuple[int, float] | None = None
    """The run, counted from 0, from which on `around_s` has another value, and that value."""
    thrashing: tuple[int, ...] = ()
    """Trials whose finals thrash at the cap."""
    failing: tuple[tuple[int, int, Outcome], ...] = ()
    """Finals that fail: in which round, of which trial, and how."""
    peaks: dict[int, int] = field(default_factory=dict)
    """Most memory that the finals of a trial held."""

    factors: dict[int, tuple[float, ...]] = field(default_factory=dict)
    """What multiplies the rate of a trial's finals, round by round; the last stays."""
    has_process: bool = False
    """Whether a process of the trials waits."""
    not_live: tuple[int, ...] = ()
    """Trials that no running process can go on with."""
    live_s: float = 1.0
    """What goes with a window in the process of the trials."""
    shared: list[bool] = field(default_factory=list)
    stops_after: int | None = None
    """How many runs are done when the user asks for an end."""
    events: list[Event] = field(default_factory=list)
    latest_trial: datetime = LONG_AGO
    """End of the latest trial."""

    def __post_init__(self) -> None:
        self.stop = StopRequest()
        self.budget = Budget(self.total_s, 0.0, lambda: self.now_s)
        for _ in range(12):
            self.budget.runs.trial_took(self.trial_s, window_s=2.0)

    # The loop and the repository, as far as the finals know them.

    def can_share(self, settings: Settings) -> bool:
        return self.has_process and settings.num_workers not in self.not_live

    def measure(
        self,
        settings: Settings,
        *,
        is_final: bool,
        is_shared: bool = False,
        window_limit_s: float,
        later: LaterFinals = NO_LATER_FINALS,
    ) -> TrialResult:
        assert is_final
        self.shared.append(is_shared)
        if self.slower_from is not None and len(self.limits) == self.slower_from[0]:
            self.around_s = self.slower_from[1]
        around_s = self.starts_s.get(settings.num_workers, self.around_s)
        window_s = min(12.0, window_limit_s)
        self.limits.append(window_limit_s)
        self.later.append(later)
        around_s = self.live_s if is_shared else around_s
        self.now_s += around_s + window_s
        if len(self.limits) == self.stops_after:
            self.stop.request()
        rate = RATES[settings.num_workers] * (1 + 0.001 * (len(self.limits) % 3))
        factors = self.factors.get(settings.num_workers, (1.0,))
        rate *= factors[min(sum(record.number == settings.num_workers for record in self.records), len(factors) - 1)]
        measurement = Measurement(
            samples_per_second=rate,
            low=(1 - self.half_width_ratio) * rate,
            high=(1 + self.half_width_ratio) * rate,
            is_converged=True,
            is_nonstationary=False,
            is_primed=False,
            num_blocks=8,
            window_s=window_s,
            data_wait_fraction=0.0,
            compute_samples_per_second=None,
        )
        round_index = sum(record.number == settings.num_workers for record in self.records)
        for index, number, outcome in self.failing:
            if (index, number) == (round_index, settings.num_workers):
                return TrialResult(outcome=outcome, reason="It failed.", wall_s=around_s + window_s)
        return TrialResult(
            outcome=Outcome.OK,
            measurement=measurement,
            wall_s=around_s + window_s,
            start=StartKind.LIVE if is_shared else StartKind.FORKED,
            is_near_cap=settings.num_workers in self.thrashing,
            peak_memory_bytes=self.peaks.get(settings.num_workers),
            surroundings=Surroundings(window_s=window_s, device_utilization=self.utilization),
            ranks=tuple(rank(rank=number, world_size=self.num_ranks) for number in range(self.num_ranks)),
        )

    def record_final(self, study: str, record: FinalRecord) -> None:
        same = [old for old in self.records if (old.round, old.number) == (record.round, record.number)]
        self.records = [old for old in self.records if old not in same] + [record]

    def finals(self, study: str) -> tuple[FinalRecord, ...]:
        return tuple(self.records)

    def trials(self, study: str) -> tuple[TrialRecord, ...]:
        return (replace(trial_record(0), finished_at=self.latest_trial),)

    def add_spent(self, study: str, spent_s: float) -> None: ...

    def announced(self) -> list[FinalsStarted]:
        return [event for event in self.events if isinstance(event, FinalsStarted)]

    def run(
        self,
        *numbers: int,
        unselected: dict[int, TrialResult] | None = None,
        baseline: FinishedTrial | None = None,
        chosen: dict[int, TrialResult] | None = None,
    ) -> FinalsResult:
        loop: Any = self
        finals = Finals(
            study="train",
            measuring=loop,
            repository=loop,
            budget=self.budget,
            stop=self.stop,
            on_event=self.events.append,
            seed=0,
        )
        result = finals.run([trial(number) for number in numbers], baseline or trial(0), unselected, chosen)
        assert result is not None, "it was stopped"
        return result

    def rounds(self, number: int) -> list[int]:
        return [record.round for record in self.records if record.number == number]


def trial(number: int) -> FinishedTrial:
    return FinishedTrial(
        number=number,
        settings=Settings(num_workers=number),
        stage="loader",
        outcome=Outcome.OK,
        samples_per_second=RATES[number],
        peak_memory_bytes=1,
        compute_samples_per_second=None,
        data_wait_fraction=None,
        half_width_ratio=0.01,
    )


def trial_record(number: int) -> TrialRecord:
    return TrialRecord(
        number=number,
        settings=Settings(num_workers=number),
        stage="loader",
        result=ok(RATES[number]),
        started_at=LONG_AGO,
        finished_at=LONG_AGO,
        optuna_told=True,
    )


def final_record(number: int, rate: float | None = None) -> FinalRecord:
    """A run of a final in the first round, by default at the rate of the trial."""
    settings, finished_at = Settings(num_workers=number), datetime.now(UTC)
    result = ok(rate or RATES[number])
    return FinalRecord(round=0, number=number, settings=settings, result=result, finished_at=finished_at)


def at_rate(result: TrialResult, factor: float) -> TrialResult:
    """A result with a rate changed by a factor."""
    assert result.measurement is not None
    rate = factor * result.measurement.samples_per_second
    return replace(result, measurement=replace(result.measurement, samples_per_second=rate))


def test_with_time_enough_all_contenders_run_three_rounds_with_full_windows() -> None:
    bench = Bench(total_s=1000.0)
    result = bench.run(1, 2, 3)
    assert all(bench.rounds(number) == [0, 1, 2] for number in range(4))
    assert result.winner.number == 1
    assert result.shortened == ""
    assert min(bench.limits) == max(FINAL_WINDOW_S, bench.around_s)


def test_every_round_has_every_contender_in_an_order_of_its_own() -> None:
    bench = Bench(total_s=1000.0)
    bench.run(1, 2, 3)
    orders = [tuple(r.number for r in bench.records if r.round == round_) for round_ in range(NUM_ROUNDS)]
    assert {frozenset(order) for order in orders} == {frozenset(range(4))}
    assert len(set(orders)) > 1


def test_a_round_that_an_earlier_session_left_half_done_is_run_anew_and_whole_ones_are_not() -> None:
    """The runs of one round are compared with each other: they have to be of the same hours."""
    bench = Bench(total_s=1000.0)
    bench.run(1)
    before = {(record.round, record.number): record for record in bench.records}
    for left in (1, 0):
        bench.records = [before[0, 0], before[0, 1], before[1, left]]
        bench.limits.clear()
        bench.run(1)
        assert [record.number for record in bench.records if record.round == 1] == [left, 1 - left]
    after = {(record.round, record.number): record for record in bench.records}
    assert after[0, 0] is before[0, 0] and after[0, 1] is before[0, 1]
    assert after[1, 0] is not before[1, 0]
    assert len(after) == 2 * NUM_ROUNDS and len(bench.limits) == 4


def test_a_resume_with_time_for_one_round_keeps_who_has_run_the_rounds_before() -> None:
    """Trial 2 leads in the finals. All three rounds fit the time no more, but two of them are there."""
    bench = Bench(total_s=1000.0, factors={2: (1.1,)})
    bench.run(1, 2)
    bench.records = [record for record in bench.records if record.round < NUM_ROUNDS - 1]
    bench.now_s = bench.total_s - 65.0
    result = bench.run(1, 2)
    assert result.winner.number == 2 and result.shortened == ""
    assert bench.rounds(0) == bench.rounds(2) == [0, 1, 2]


def test_a_resume_after_the_last_round_gives_the_answer_of_the_session_before() -> None:
    bench = Bench(total_s=1000.0)
    before = bench.run(1, 2, 3)
    num_runs, bench.now_s = len(bench.limits), bench.total_s - 90.0
    assert bench.budget.affordable_finalists() == 1
    after = bench.run(1, 2, 3)
    assert len(bench.limits) == num_runs
    assert (after.winner.number, after.comparison) == (before.winner.number, before.comparison)


def test_a_resume_within_the_first_round_measures_who_had_not_run() -> None:
    bench = Bench(total_s=1000.0)
    bench.run(1, 2)
    bench.records = [record for record in bench.records if record.round == 0 and record.number != 2]
    bench.run(1, 2)
    assert all(bench.rounds(number) == [0, 1, 2] for number in range(3))


def test_finals_after_more_trials_have_rounds_and_contenders_of_their_own() -> None:
    """The false rival of the first finals, trial 3, was the best of fewer trials."""
    bench = Bench(total_s=2000.0, factors={3: (0.8,)})
    assert bench.run(3).winner.number == 0
    rounds_before = bench.rounds(0)
    bench.latest_trial = datetime.now(UTC)
    result = bench.run(1, 3)
    assert result.winner.number == 1 and {record.round for record in result.records} == set(range(NUM_ROUNDS))
    assert bench.rounds(1) == [max(rounds_before) + 1 + index for index in range(NUM_ROUNDS)]


def test_a_resume_within_further_finals_keeps_their_contenders() -> None:
    bench = Bench(total_s=2000.0)
    bench.run(3)
    bench.latest_trial = datetime.now(UTC)
    bench.run(1)
    last = max(record.round for record in bench.records)
    bench.records = [record for record in bench.records if record.round < last]
    num_runs = len(bench.limits)
    assert bench.run(3, 1).winner.number == 1
    assert len(bench.limits) == num_runs + 2


def test_a_resume_leaves_out_who_was_dropped_two_rounds_before() -> None:
    bench = Bench(total_s=1000.0)
    bench.run(1, 2, 3)
    dropped = {(0, 3)}
    bench.records = [
        record for record in bench.records if record.number != 3 or (record.round, record.number) in dropped
    ]
    num_runs = len(bench.limits)
    bench.run(1, 2, 3)
    assert bench.rounds(3) == [0] and len(bench.limits) == num_runs


def test_a_baseline_that_lost_its_race_is_measured_in_full_before_anything_is_published() -> None:
    """Trials taken over from a study under another cap are there before the baseline's trial."""
    raced = replace(trial(0), outcome=Outcome.RACED_OUT)
    bench = Bench(total_s=1000.0)
    result = bench.run(1, 2, baseline=raced)
    assert bench.rounds(0) == [0, 1, 2]
    assert result.comparison is not None and result.comparison.ratio == pytest.approx(1.5, rel=0.01)
    assert status_of(finals=result, baseline=raced, trials=(), is_stopped=False) is Status.IMPROVED
    assert not result.doubt


def test_a_trial_that_lost_its_race_is_no_round_of_the_finals() -> None:
    raced = replace(trial(0), outcome=Outcome.RACED_OUT)
    history = History([raced, trial(1)], raced.settings)
    records = [
        TrialRecord(
            number=each.number,
            settings=each.settings,
            stage=each.stage,
            result=replace(ok(100.0), outcome=each.outcome, reason="It ended."),
            started_at=datetime.now(UTC),
            finished_at=datetime.now(UTC),
            environment={},
            optuna_told=True,
        )
        for each in (raced, trial(1))
    ]
    assert results_without_choice(history, [trial(1)], results_of_trials(history, [trial(1)], records)).keys() == {1}


@pytest.mark.parametrize("baseline", [None, replace(trial(0), outcome=Outcome.CRASHED)])
def test_settings_without_a_comparison_are_no_gain_and_no_proof_that_there_is_none(
    baseline: FinishedTrial | None,
) -> None:
    finals = FinalsResult(winner=trial(1), baseline=baseline, comparison=None, records=())
    assert status_of(finals=finals, baseline=baseline, trials=(), is_stopped=False) is Status.TOO_SHORT


def test_windows_shrink_so_that_the_finals_end_in_time() -> None:
    bench = Bench(total_s=6 * (8.0 + 4.0) + 1.0)
    result = bench.run(1)
    assert all(bench.rounds(number) == [0, 1, 2] for number in (0, 1))
    assert bench.now_s <= bench.total_s + 0.1
    assert max(bench.limits) < 12.0
    assert result.shortened == ""


def test_where_runs_turn_out_slower_the_slowest_contenders_are_dropped() -> None:
    bench = Bench(total_s=250.0, around_s=18.0)
    result = bench.run(1, 2, 3)
    assert bench.rounds(0) == bench.rounds(1) == [0, 1, 2]
    assert len(bench.rounds(3)) < NUM_ROUNDS
    assert result.winner.number == 1
    assert "contenders" in result.shortened
    assert bench.now_s <= bench.total_s * 1.02


def test_who_is_dropped_for_want_of_time_does_not_win_by_fewer_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trial 2 comes within 1 % of the fastest, and holds less."""
    monkeypatch.setitem(RATES, 2, 149.5)
    peaks = {0: 100 << 20, 1: 100 << 20, 2: 80 << 20}
    assert Bench(1000.0, around_s=16.0, peaks=peaks).run(1, 2).winner.number == 2
    bench = Bench(215.0, around_s=16.0, peaks=peaks, slower_from=(3, 24.0))
    result = bench.run(1, 2)
    assert bench.rounds(2) == [0, 1] and result.winner.number == 1
    assert result.shortened == "The time allowed only 2 contenders to the last round."


def test_rounds_that_others_ended_are_not_said_to_lack_the_time() -> None:
    result = Bench(1000.0, failing=((2, 1, Outcome.INTERRUPTED),)).run(1)
    assert result.shortened == "Runs were ended from outside this search: 2 of 3 rounds are whole."


def test_who_failed_in_a_round_is_not_run_again() -> None:
    bench = Bench(1000.0, failing=((0, 1, Outcome.CRASHED),))
    result = bench.run(1, 2)
    assert (bench.rounds(1), bench.rounds(2), bench.rounds(0)) == ([0], [0, 1, 2], [0, 1, 2])
    assert (result.winner.number, result.shortened) == (2, "")


@pytest.mark.parametrize(("total_s", "num_rounds"), [(150.0, 3), (110.0, 2), (50.0, 1), (20.0, 0)])
def test_rounds_are_left_out_rather_than_the_time_passed_by_more_than_a_tenth(total_s: float, num_rounds: int) -> None:
    bench = Bench(total_s=total_s, trial_s=22.0, around_s=20.0)
    result = bench.run(1)
    assert bench.rounds(0) == bench.rounds(1) == list(range(num_rounds))
    assert bench.now_s <= 1.1 * total_s
    assert result.is_compared == (num_rounds > 1)
    assert result.shortened == ("" if num_rounds == 3 else f"The time allowed {num_rounds} of 3 rounds of finals.")
    if num_rounds < 2:
        assert result.winner.number == 0


def test_a_search_without_time_for_two_rounds_was_too_short() -> None:
    result = Bench(total_s=50.0, trial_s=22.0, around_s=20.0).run(1)
    assert (result.winner.number, result.comparison) == (0, None)
    assert status_of(finals=result, baseline=trial(0), trials=(), is_stopped=False) is Status.TOO_SHORT


def test_a_single_round_of_finals_is_told_without_an_interval() -> None:
    """ResNet-50 was 3.01x as fast in a single round, and the search kept that to itself."""
    result = Bench(total_s=50.0, trial_s=22.0, around_s=20.0).run(1)
    history = History((trial(0), trial(1)), trial(0).settings)
    notes = notes_of(Status.TOO_SHORT, history, result.winner, (), result)
    assert any(note.startswith("In the only round of the finals trial 1 was 1.50x as fast as yours") for note in notes)
    assert any("not confirmed" in note and "only round" in note for note in notes)
    assert not any("only round" in note for note in notes_of(Status.NO_GAIN, history, result.winner, (), result))


def test_a_single_round_that_was_slower_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RATES, 1, 94.0)
    result = Bench(total_s=50.0, trial_s=22.0, around_s=20.0).run(1)
    history = History((trial(0), trial(1)), trial(0).settings)
    notes = notes_of(Status.TOO_SHORT, history, result.winner, (), result)
    assert any("trial 1 was 0.94x as fast as yours" in note for note in notes)


@pytest.mark.parametrize(("total_s", "num_run"), [(20.0, 0), (50.0, 1), (110.0, 2)])
def test_the_rounds_that_are_announced_are_those_of_which_some_were_left_out(total_s: float, num_run: int) -> None:
    """The trials of a single rival stand for a round: 2 rounds were announced, and 1 of 3 told, with none run."""
    bench = Bench(total_s=total_s, trial_s=22.0, around_s=20.0)
    results = {number: bench.measure(trial(number).settings, is_final=True, window_limit_s=4.0) for number in (0, 1)}
    bench.now_s, bench.limits = 0.0, []
    result = bench.run(1, unselected=results)
    assert len(bench.limits) == 2 * num_run
    assert [event.num_rounds for event in bench.announced()] == ([2] if num_run else [])
    told = f"The time allowed {num_run} of 2 rounds of finals; the trials count as a further round."
    assert result.shortened == ("" if num_run == 2 else told)
    counted = "The trials of these settings count as one of the rounds of the finals."
    assert (counted in result.told) is (num_run == 2), "the summary counts three rounds"


def test_a_round_of_live_trials_is_no_round_of_finals_that_the_time_allowed() -> None:
    bench = Bench(total_s=50.0, trial_s=22.0, around_s=20.0)
    results = {number: bench.measure(trial(number).settings, is_final=True, window_limit_s=4.0) for number in (0, 1)}
    results[1] = replace(results[1], start=StartKind.LIVE)
    bench.now_s, bench.limits = 0.0, []
    first = bench.run(1, unselected=results)
    told = "The time allowed 1 of 3 rounds of finals; the trials count as a further round."
    assert first.shortened == told == bench.run(1, unselected=results).shortened
    assert [event.num_rounds for event in bench.announced()] == [3]


def test_the_ratio_of_trials_without_a_round_of_finals_is_told_as_one_of_the_trials() -> None:
    bench = Bench(total_s=20.0, trial_s=22.0, around_s=20.0)
    results = {number: bench.measure(trial(number).settings, is_final=True, window_limit_s=4.0) for number in (0, 1)}
    bench.now_s, bench.limits = 0.0, []
    result = bench.run(1, unselected=results)
    history = History((trial(0), trial(1)), trial(0).settings)
    records = [replace(trial_record(number), result=results[number]) for number in (0, 1)]
    notes = notes_of(Status.TOO_SHORT, history, result.winner, records, result)
    (note,) = [note for note in notes if "as fast as yours" in note]
    assert note.startswith("In the trials alone trial 1 was 1.50x as fast as yours, not confirmed by finals.")


def test_a_resume_announces_the_rounds_that_are_left_and_those_that_are_done() -> None:
    bench = Bench(total_s=110.0, trial_s=22.0, around_s=20.0)
    bench.run(1)
    bench.now_s = 0.0
    bench.run(1)
    assert [(event.num_rounds, event.num_done) for event in bench.announced()] == [(3, 0), (1, 2)]


def test_a_single_round_tells_nothing_of_a_contender_that_passed_the_cap() -> None:
    bench = Bench(total_s=50.0, trial_s=22.0, around_s=20.0)
    result = bench.run(1)
    over = [
        replace(record, result=replace(record.result, outcome=Outcome.OUT_OF_MEMORY)) if record.number == 1 else record
        for record in result.records
    ]
    history = History((trial(0), trial(1)), trial(0).settings)
    notes = notes_of(Status.TOO_SHORT, history, result.winner, (), replace(result, records=tuple(over)))
    assert not any("only round" in note for note in notes)


def test_a_rival_whose_rounds_fit_takes_the_place_of_a_faster_one_whose_rounds_do_not() -> None:
    bench = Bench(total_s=75.0, around_s=8.0)
    bench.budget.runs.trial_took(60.0, window_s=2.0, number=1)
    bench.budget.runs.trial_took(10.0, window_s=2.0, number=2)
    bench.budget.runs.trial_took(10.0, window_s=2.0, number=0)
    result = bench.run(1, 2)
    assert (bench.rounds(1), len(bench.rounds(2))) == ([], 3)
    assert result.is_compared and result.winner.number == 2 and result.comparison is not None


def test_trials_among_which_nobody_chose_are_the_first_round() -> None:
    bench = Bench(total_s=50.0, trial_s=22.0, around_s=20.0)
    results = {number: bench.measure(trial(number).settings, is_final=True, window_limit_s=4.0) for number in (0, 1)}
    bench.now_s, bench.limits = 0.0, []
    result = bench.run(1, unselected=results)
    assert bench.rounds(0) == bench.rounds(1) == [0, 1] and len(bench.limits) == 2
    assert result.winner.number == 1 and result.comparison is not None and result.comparison.num_rounds == 2


def test_an_earlier_final_of_the_scripts_own_settings_alone_is_no_half_round_of_later_finals() -> None:
    """A search with time for one trial has such a final; after a resume with more time it stood for the trial."""
    bench = Bench(total_s=50.0, trial_s=22.0, around_s=20.0, latest_trial=datetime(2026, 11, 28, tzinfo=UTC))
    results = {number: bench.measure(trial(number).settings, is_final=True, window_limit_s=4.0) for number in (0, 1)}
    bench.now_s, bench.limits = 0.0, []
    alone = trial(0).settings, results[0], datetime(2026, 11, 27, tzinfo=UTC)
    bench.records = [FinalRecord(round=0, number=0, settings=alone[0], result=alone[1], finished_at=alone[2])]
    result = bench.run(1, unselected=results)
    assert bench.rounds(1) == [1, 2] and len(bench.limits) == 2
    assert result.is_compared and result.winner.number == 1


def test_the_trial_of_the_only_rival_is_the_second_round_where_the_time_allowed_one() -> None:
    """timm's ResNet-50 was 3.3x as fast in two trials and 3.0x in the only round; its own settings were kept."""
    bench = Bench(total_s=50.0, trial_s=22.0, around_s=20.0)
    results = {number: bench.measure(trial(number).settings, is_final=True, window_limit_s=4.0) for number in (0, 1)}
    results[1] = replace(results[1], start=StartKind.LIVE)
    bench.now_s, bench.limits = 0.0, []
    result = bench.run(1, unselected=results)
    assert bench.rounds(0) == bench.rounds(1) == [0, 1] and len(bench.limits) == 2
    assert result.is_compared and result.winner.number == 1 and result.comparison is not None
    assert result.told[0].startswith("1 of the 2 rounds of the finals ran in the process of the trials")
    fresh = Bench(total_s=1000.0, trial_s=22.0, around_s=20.0)
    assert fresh.run(1, unselected=results).told == () and fresh.rounds(1) == [0, 1, 2], "new processes fit the time"


@pytest.mark.parametrize(
    ("factors", "total_s", "is_compared"),
    [((0.9, 1.8), 110.0, False), ((0.6, 0.62), 110.0, True), ((0.9, 1.8), 400.0, True)],
    ids=["ahead and open", "behind", "all rounds"],
)
def test_want_of_time_is_no_proof_that_a_contender_well_ahead_is_no_faster(
    factors: tuple[float, ...], total_s: float, is_compared: bool
) -> None:
    bench = Bench(total_s=total_s, trial_s=22.0, around_s=20.0, factors={1: factors})
    result = bench.run(1)
    assert (len(bench.rounds(1)) > 2) == (total_s > 200.0)
    assert result.winner.number == 0 or is_compared
    assert result.is_compared and result.is_open is not is_compared
    if not is_compared:
        assert sum(words.startswith("Trial 1 was ") for words in result.told) == 1, "once, likely faster or not"
    assert bench.run(1).is_open is not is_compared, "also after a resume without a further run"


@pytest.mark.parametrize(
    ("factor", "half", "is_gain"),
    [(1.05, 0.02, True), (0.6, 0.02, False), (1.3, 0.02, False), (1.05, 0.2, False)],
    ids=["agrees", "no gain in the trials", "another gain", "wide"],
)
def test_a_plain_gain_of_the_only_round_counts_if_the_chosen_trials_say_the_same(
    factor: float, half: float, is_gain: bool
) -> None:
    """timm's ResNet-50 was 3.35x as fast in the trials and 3.30x in the only round; its own settings were kept."""
    bench = Bench(total_s=50.0, trial_s=22.0, around_s=20.0, factors={1: (1.4,)})
    results = {number: bench.measure(trial(number).settings, is_final=True, window_limit_s=4.0) for number in (0, 1)}
    results[1] = at_rate(results[1], factor)
    bench.now_s, bench.limits = 0.0, []
    own = replace(trial(0), half_width_ratio=half)
    result = bench.run(1, baseline=own, chosen=results)
    assert len(bench.limits) == 2
    assert (result.winner.number == 1, result.is_compared, result.comparison is not None) == (is_gain,) * 3
    assert bench.rounds(1) == ([0, 1] if is_gain else [0])


@pytest.mark.parametrize(("factor", "is_gain"), [(1.05, True), (0.6, False)], ids=["a gain", "no gain in the trials"])
def test_trials_are_the_third_round_where_two_rounds_leave_a_plain_gain_open(factor: float, is_gain: bool) -> None:
    """A model bound by launches was 1.98x and 2.51x as fast in two rounds on an H100; its own settings were kept."""
    bench = Bench(total_s=110.0, trial_s=22.0, around_s=20.0, factors={1: (1.4, 2.2)})
    results = {number: bench.measure(trial(number).settings, is_final=True, window_limit_s=4.0) for number in (0, 1)}
    results[1] = at_rate(results[1], factor)
    bench.now_s, bench.limits = 0.0, []
    result = bench.run(1, baseline=replace(trial(0), half_width_ratio=0.02), chosen=results)
    assert len(bench.limits) == 4 and bench.rounds(1) == ([0, 1, 2] if is_gain else [0, 1])
    assert (result.winner.number == 1, result.comparison is not None) == (is_gain,) * 2
    assert ("as one more round" in result.shortened) == is_gain


def test_a_resume_does_not_count_the_same_trials_twice() -> None:
    bench = Bench(total_s=50.0, trial_s=22.0, around_s=20.0, factors={1: (1.4,)})
    results = {number: bench.measure(trial(number).settings, is_final=True, window_limit_s=4.0) for number in (0, 1)}
    results[1] = at_rate(results[1], 1.05)
    bench.now_s, bench.limits = 0.0, []
    own = replace(trial(0), half_width_ratio=0.02)
    first = bench.run(1, baseline=own, chosen=results)
    again = bench.run(1, baseline=own, chosen=results)
    assert bench.rounds(1) == bench.rounds(0) == [0, 1] and len(bench.limits) == 2
    assert again.comparison == first.comparison and again.shortened == first.shortened != ""


def test_a_contender_that_failed_in_one_of_two_rounds_has_no_third_of_its_trial() -> None:
    bench = Bench(total_s=110.0, trial_s=22.0, around_s=20.0, factors={1: (1.4, 2.2)})
    results = {number: bench.measure(trial(number).settings, is_final=True, window_limit_s=4.0) for number in (0, 1)}
    bench.now_s, bench.limits = 0.0, []
    own = replace(trial(0), half_width_ratio=0.02)
    bench.run(1, baseline=own, chosen={})
    bench.records = [
        replace(record, result=replace(record.result, outcome=Outcome.OUT_OF_MEMORY, measurement=None))
        if (record.number, record.round) == (1, 1)
        else record
        for record in bench.records
    ]
    result = bench.run(1, baseline=own, chosen=results)
    assert bench.rounds(1) == [0, 1] and result.winner.number == 0 and "one more round" not in result.shortened


def test_trials_that_are_the_only_round_are_not_the_second_too() -> None:
    bench = Bench(total_s=50.0, trial_s=60.0, around_s=60.0, factors={1: (1.4,)})
    results = {number: bench.measure(trial(number).settings, is_final=True, window_limit_s=4.0) for number in (0, 1)}
    bench.now_s, bench.limits = 0.0, []
    result = bench.run(1, unselected=results, chosen=results, baseline=replace(trial(0), half_width_ratio=0.02))
    assert not result.is_compared and result.comparison is None and bench.limits == []


def test_a_single_round_in_the_process_of_the_trials_stays_a_single_round() -> None:
    bench = Bench(total_s=14.0, trial_s=22.0, around_s=20.0, has_process=True, factors={1: (1.4,)})
    results = {number: bench.measure(trial(number).settings, is_final=True, window_limit_s=4.0) for number in (0, 1)}
    bench.now_s, bench.limits = 0.0, []
    result = bench.run(1, chosen=results, baseline=replace(trial(0), half_width_ratio=0.02))
    assert result.is_compared == (len(bench.rounds(1)) > 1) and len(bench.rounds(1)) * 2 == len(bench.limits)


def test_a_half_round_cut_by_the_time_does_not_keep_the_trials_from_being_the_second() -> None:
    bench = Bench(total_s=50.0, trial_s=22.0, around_s=20.0)
    results = {number: bench.measure(trial(number).settings, is_final=True, window_limit_s=4.0) for number in (0, 1)}
    results[1] = replace(results[1], start=StartKind.LIVE)
    bench.now_s = 0.0
    finished_at = datetime.now(UTC)
    half = FinalRecord(round=1, number=1, settings=trial(1).settings, result=results[0], finished_at=finished_at)
    bench.records = [half]
    result = bench.run(1, unselected=results)
    assert bench.rounds(0) == [0, 2] and sorted(bench.rounds(1)) == [0, 1, 2]
    assert result.is_compared and result.winner.number == 1
    again = bench.run(1, unselected=results)
    assert again.is_compared and max(bench.rounds(0)) == 2, "the same trials are no third round"


def test_finals_run_in_the_process_of_the_trials_where_new_processes_do_not_fit() -> None:
    bench = Bench(total_s=30.0, trial_s=22.0, around_s=20.0, has_process=True)
    bench.budget.allow_sharing(lambda: True)
    result = bench.run(1)
    assert all(bench.shared) and len(bench.rounds(1)) >= 2 and bench.now_s <= 1.1 * 30.0
    assert result.is_compared and result.winner.number == 1
    assert result.told[0].startswith("All rounds of the finals ran in the process of the trials")
    assert result.comparison is not None
    assert result.comparison.low < math.exp(-SHARED_ERROR) * result.comparison.ratio


def test_finals_of_settings_that_no_running_process_takes_are_left_out_of_a_shared_process() -> None:
    bench = Bench(total_s=30.0, trial_s=22.0, around_s=20.0, has_process=True, not_live=(1,))
    bench.budget.allow_sharing(lambda: True)
    result = bench.run(1, 2)
    assert bench.rounds(1) == [] and result.winner.number == 2


def test_finals_have_processes_of_their_own_where_these_fit() -> None:
    bench = Bench(total_s=300.0, trial_s=22.0, around_s=20.0, has_process=True)
    bench.budget.allow_sharing(lambda: True)
    result = bench.run(1)
    assert not any(bench.shared) and result.told == ()


def test_finals_share_a_process_where_new_processes_would_only_just_fit() -> None:
    """YOLOv5 on an H200: a round took 47 s where 40 s were expected, and the answer was a single round."""
    bench = Bench(total_s=100.0, trial_s=22.0, around_s=20.0, has_process=True)
    bench.budget.allow_sharing(lambda: True)
    assert bench.budget.affords_least_rounds((0, 1))
    result = bench.run(1)
    assert all(bench.shared) and result.is_compared


def test_the_fastest_trial_has_new_processes_that_only_just_fit_where_it_cannot_share_one() -> None:
    bench = Bench(total_s=100.0, trial_s=22.0, around_s=20.0, has_process=True, not_live=(1,))
    bench.budget.allow_sharing(lambda: True)
    result = bench.run(1, 2)
    assert not any(bench.shared) and result.winner.number == 1 and result.is_compared


def test_a_baseline_without_a_rival_is_not_run_again() -> None:
    bench = Bench(total_s=1000.0)
    own = bench.measure(trial(0).settings, is_final=True, window_limit_s=4.0)
    bench.limits = []
    result = bench.run(unselected={0: own})
    assert bench.limits == [] and result.is_compared
    assert published_rate(result.records, 0) is not None
    assert status_of(finals=result, baseline=trial(0), trials=(), is_stopped=False) is Status.NO_GAIN


def test_figures_are_of_the_finals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(total_s=1000.0)
    monkeypatch.setitem(RATES, 1, 90.0)
    lucky = trial(1)
    assert lucky.samples_per_second == 90.0
    monkeypatch.setitem(RATES, 1, 300.0)
    result = bench.run(1)
    assert result.comparison is not None
    assert result.comparison.ratio == pytest.approx(3.0, rel=0.01)


@pytest.mark.parametrize(("rate", "peak", "winner"), [(149.5, 80, 2), (149.5, 98, 1), (149.5, 120, 1), (146.0, 80, 1)])
def test_within_one_percent_a_tenth_less_memory_wins_then_fewer_workers(
    monkeypatch: pytest.MonkeyPatch, rate: float, peak: int, winner: int
) -> None:
    """Trial 2 has a worker more, and nearly the rate of trial 1, which holds 100 MiB."""
    monkeypatch.setitem(RATES, 2, rate)
    bench = Bench(total_s=1000.0, peaks={0: 100 << 20, 1: 100 << 20, 2: peak << 20})
    assert bench.run(1, 2).winner.number == winner


def test_with_equal_memory_and_workers_the_higher_precision_wins() -> None:
    order = (Precision.FP32, Precision.TF32, Precision.BF16, Precision.FP16)
    keys = [
        tie_key(replace(trial(1), settings=Settings(num_workers=1, precision=each)), (), Settings()) for each in order
    ]
    assert keys == sorted(keys) and len(set(keys)) == len(order)


def test_thrashing_at_the_cap_loses_against_a_gain_without() -> None:
    assert Bench(total_s=1000.0, thrashing=(1, 2)).run(1, 2, 3).winner.number == 3


def test_thrashing_at_the_cap_wins_where_nobody_else_is_a_gain() -> None:
    assert Bench(total_s=1000.0, thrashing=(1,)).run(1).winner.number == 1


def test_the_scripts_own_settings_stay_where_nobody_is_through_all_rounds() -> None:
    bench = Bench(1000.0, failing=((1, 0, Outcome.INVALID), (0, 1, Outcome.CRASHED)))
    result = bench.run(1)
    assert result.winner.number == 0
    assert result.comparison is None


def test_the_interval_of_a_single_run_knows_how_much_runs_differ() -> None:
    result = Bench(1000.0, failing=((1, 0, Outcome.INVALID),)).run()
    assert result.winner.number == 0
    rate, (low, high) = published_rate(result.records, 0) or (0.0, (0.0, 0.0))
    assert rate == pytest.approx(100.0, rel=0.01)
    assert rate / low == pytest.approx(high / rate)
    assert math.log(high / rate) == pytest.approx(math.hypot(0.02, NORMAL_95 * TYPICAL_RUN_SPREAD))


def test_settings_that_cannot_be_compared_with_the_scripts_own_do_not_win() -> None:
    result = Bench(1000.0, failing=((1, 0, Outcome.INVALID),)).run(1)
    assert (result.winner.number, result.comparison) == (0, None)


@pytest.mark.parametrize("outcome", [Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.INVALID])
def test_a_late_failure_of_the_scripts_own_settings_is_told_and_takes_no_gain_back(outcome: Outcome) -> None:
    noisy = {0: (0.95, 1.05, 1.0, 0.97, 1.04, 1.0), 1: (1.04, 0.97, 1.0, 1.05, 0.96, 1.0)}
    bench = Bench(1000.0, factors=noisy, failing=((3, 0, outcome),))
    result = bench.run(1)
    assert len(bench.rounds(0)) > NUM_ROUNDS, "the failure is in a further round"
    assert result.winner.number == 1 and result.comparison is not None and result.comparison.is_gain
    assert "Your own settings failed in 1 of" in " ".join(result.told)


def test_a_gain_that_a_failure_leaves_out_is_not_said_to_be_within_the_noise() -> None:
    told = " ".join(Bench(1000.0, failing=((1, 0, Outcome.CRASHED),)).run(1).told)
    assert "Your own settings failed in 1 of 4 runs of the finals" in told and "It failed." in told
    assert "likely faster" not in told


def test_where_the_scripts_own_settings_do_not_fit_in_a_round_the_fastest_that_do_win() -> None:
    result = Bench(1000.0, failing=((1, 0, Outcome.OVER_CAP),)).run(1)
    assert (result.winner.number, result.comparison) == (1, None)
    assert status_of(finals=result, baseline=trial(0), trials=(), is_stopped=False) is Status.BASELINE_INFEASIBLE


def test_who_asks_for_an_end_in_the_last_run_gets_the_result() -> None:
    assert Bench(1000.0, stops_after=2 * NUM_ROUNDS).run(1).winner.number == 1


def test_who_asks_for_an_end_before_the_last_run_gets_none() -> None:
    with pytest.raises(AssertionError, match="it was stopped"):
        Bench(1000.0, stops_after=2 * NUM_ROUNDS - 1).run(1)


def test_who_is_probably_slower_leaves_the_others_the_time_of_a_short_search() -> None:
    bench = Bench(total_s=200.0)
    result = bench.run(1, 2, 3)
    assert bench.rounds(3) == [0, 1]
    assert len(bench.rounds(0)) >= NUM_ROUNDS and result.winner.number == 1
    assert result.shortened == ""


@pytest.mark.parametrize(("factor", "num_rounds"), [(1.0, 1), (1.6, NUM_ROUNDS)], ids=["slow", "slow only when tried"])
def test_who_is_plainly_slower_in_the_trial_and_the_first_round_runs_no_more(factor: float, num_rounds: int) -> None:
    bench = Bench(total_s=1000.0, factors={4: (factor,)})
    assert bench.run(1, 4).winner.number == 1
    assert len(bench.rounds(4)) == num_rounds
    assert len(bench.rounds(1)) == len(bench.rounds(0)) == NUM_ROUNDS


def test_who_is_faster_than_the_script_stays_for_the_case_that_the_leader_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(RATES, 1, 200.0)
    bench = Bench(total_s=1000.0, failing=((1, 1, Outcome.OVER_CAP),))
    assert bench.run(1, 3).winner.number == 3


def test_further_finals_without_time_leave_the_answer_of_those_before() -> None:
    bench = Bench(total_s=1000.0)
    before = bench.run(1)
    bench.latest_trial = datetime.now(UTC)
    bench.now_s = 2 * bench.total_s
    after = bench.run(2, 1)
    assert after.is_compared and after.comparison is not None and before.comparison is not None
    assert (after.winner.number, after.comparison.ratio) == (1, before.comparison.ratio)


def test_the_scripts_own_settings_run_all_rounds_however_slow() -> None:
    bench = Bench(total_s=1000.0, factors={0: (0.5,)})
    assert bench.run(1).winner.number == 1
    assert bench.rounds(0) == bench.rounds(1)


def test_finals_end_once_every_other_contender_is_slower_than_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RATES, 1, 40.0)
    bench = Bench(total_s=200.0)
    bench.total_s = 70.0
    bench.budget = Budget(70.0, 0.0, lambda: bench.now_s)
    for _ in range(12):
        bench.budget.runs.trial_took(10.0, window_s=2.0)
    result = bench.run(1)
    assert result.winner.number == 0 and result.is_compared
    assert bench.rounds(0) == [0, 1] and result.shortened == ""
    assert result.measured == {0, 1}


@pytest.mark.parametrize(
    ("utilization", "half_width_ratio", "num_ranks", "is_gain"),
    [(0.99, 0.01, 1, True), (None, 0.01, 1, False), (0.99, 0.02, 1, False), (0.99, 0.01, 2, False)],
)
def test_three_rounds_prove_a_gain_of_two_percent_where_one_device_alone_sets_the_pace(
    utilization: float | None, half_width_ratio: float, num_ranks: int, is_gain: bool
) -> None:
    seen = Bench(
        66.0,
        utilization=utilization,
        half_width_ratio=half_width_ratio,
        num_ranks=num_ranks,
        factors={1: (0.68,)},  # 1.02 times the script's own
    )
    result = seen.run(1)
    assert seen.rounds(0) == [0, 1, 2]
    assert (result.winner.number == 1) is is_gain


def test_a_contender_that_is_likely_faster_but_not_proven_is_named() -> None:
    seen = Bench(100.0, factors={1: (0.93, 1.06, 0.77, 0.79)})  # 1.39, 1.58, 1.15 and 1.18 times the script's own
    result = seen.run(1, 0)
    assert result.winner.number == 0 and result.comparison is None
    [sentence] = result.told
    assert sentence.startswith("Trial 1 was 1.3") and "likely faster, but not beyond the noise" in sentence


def test_a_contender_as_fast_as_the_script_is_not_named() -> None:
    assert Bench(100.0, factors={1: (0.7, 0.6, 0.72, 0.65)}).run(1, 0).told == ()
    assert Bench(100.0).run(1, 0).told == ()


def test_a_disturbed_final_may_be_repeated_beside_the_fewest_rounds_that_must_follow() -> None:
    seen = Bench(1000.0)
    seen.run(1, 0)
    needed = [later.needed_s(11.0) / 11.0 for later in seen.later[:6]]
    assert needed == pytest.approx([3.0, 2.0, 1.0, 0.0, 1.0, 0.0], rel=0.1)


def test_finals_that_must_follow_take_as_long_as_those_of_their_own_contender() -> None:
    """ResNet-50, compiled, took 54 s beside 12 s: a repeat of the first final left no time for a second round."""
    seen = Bench(1000.0, starts_s={1: 47.0})
    seen.budget.runs.trial_took(49.0, window_s=2.0, number=1)
    seen.budget.runs.trial_took(10.0, window_s=2.0, number=0)
    seen.run(1, 0)
    took_s = {0: 11.0, 1: 50.0}
    numbers = [record.number for record in seen.records[:4]]
    needed_s = [later.needed_s(took_s[number]) for number, later in zip(numbers, seen.later[:4], strict=True)]
    following_s = [sum(took_s[number] for number in numbers[1 + position :]) for position in range(4)]
    assert needed_s == pytest.approx(following_s, rel=0.05)
