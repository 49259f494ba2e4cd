"""Finals beside a simulated neighbour, and finals that contradict the trials of the same settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult
from autotune.model.search_result import Status
from autotune.model.surroundings import Surroundings
from autotune.model.trial_records import FinalRecord
from autotune.search.history import FinishedTrial
from autotune.settings import OmpWaitPolicy, Settings
from autotune.study.budget import NUM_ROUNDS, Budget
from autotune.study.final_choice import FinalsResult
from autotune.study.final_doubts import counted, disturbed_words
from autotune.study.final_rates import steadiness_of
from autotune.study.finals import Finals
from autotune.study.publish import status_of
from autotune.study.stop import StopRequest
from tests.unit.report.examples import measured

OWN = Settings(num_workers=2, intra_op_threads=2)
ONE_THREAD = replace(OWN, intra_op_threads=1)
MORE_WORKERS = replace(OWN, num_workers=4)
BOTH = replace(MORE_WORKERS, intra_op_threads=1, omp_wait_policy=OmpWaitPolicy.PASSIVE)
SETTINGS = {0: OWN, 1: ONE_THREAD, 2: MORE_WORKERS, 3: BOTH}
QUIET = {OWN: 700.0, ONE_THREAD: 500.0, MORE_WORKERS: 840.0, BOTH: 600.0}
BESIDE_LOAD = {OWN: 130.0, ONE_THREAD: 490.0, MORE_WORKERS: 160.0, BOTH: 520.0}
"""Rates beside a program that holds one of two cores: as on a public script of this kind."""


@dataclass
class Machine:
    """Two cores, and a neighbour in some runs."""

    is_loaded: Callable[[int], bool] = lambda run: False
    """Whether the neighbour is at work, by the number of the run."""
    quiet: dict[Settings, float] = field(default_factory=lambda: dict(QUIET))
    beside_load: dict[Settings, float] = field(default_factory=lambda: dict(BESIDE_LOAD))
    num_runs: int = 0
    has_process: bool = False
    records: list[Any] = field(default_factory=list)

    def can_share(self, settings: Settings) -> bool:
        return False

    def measure(self, settings: Settings, *, is_final: bool, window_limit_s: float, **others: Any) -> TrialResult:
        is_loaded = self.is_loaded(self.num_runs)
        self.num_runs += 1
        rate = (self.beside_load if is_loaded else self.quiet)[settings] * (1 + 0.002 * (self.num_runs % 3))
        busy = 1.0 if is_loaded else 0.05
        return measured(rate, surroundings=Surroundings(window_s=8.0, usable_cpus=2.0, foreign_cpus=busy))

    def record_final(self, study: str, record: Any) -> None:
        self.records.append(record)

    def finals(self, study: str) -> tuple[Any, ...]:
        return tuple(self.records)

    def trials(self, study: str) -> tuple[Any, ...]:
        return ()

    def add_spent(self, study: str, spent_s: float) -> None: ...

    def run(
        self,
        *numbers: int,
        trial_rates: dict[int, float] | None = None,
        were_trials_loaded: bool = False,
        total_s: float = 10_000.0,
    ) -> Any:
        budget = Budget(total_s, 0.0, lambda: 0.0)
        for _ in range(12):
            budget.runs.trial_took(10.0, window_s=2.0)
        loop: Any = self
        finals = Finals(
            study="train",
            measuring=loop,
            repository=loop,
            budget=budget,
            stop=StopRequest(),
            on_event=lambda event: None,
            seed=0,
        )
        rates = trial_rates or {number: QUIET[settings] for number, settings in SETTINGS.items()}
        trials = {number: trial(number, rates[number], were_trials_loaded) for number in (0, *numbers)}
        result = finals.run([trials[number] for number in numbers], trials[0])
        assert result is not None
        return result

    @property
    def num_rounds(self) -> int:
        return len({record.round for record in self.records})


def trial(number: int, rate: float, is_loaded: bool) -> FinishedTrial:
    return FinishedTrial(
        number=number,
        settings=SETTINGS[number],
        stage="threads",
        outcome=Outcome.OK,
        samples_per_second=rate,
        half_width_ratio=0.02,
        is_beside_load=is_loaded,
        is_disturbed=is_loaded,
    )


def status(result: FinalsResult) -> Status:
    return status_of(finals=result, baseline=result.baseline, trials=(), is_stopped=False)


def test_fewer_threads_beside_a_neighbour_are_taken_back_and_the_note_says_why() -> None:
    machine = Machine(is_loaded=lambda run: True)
    result = machine.run(1, were_trials_loaded=True)
    assert status(result) is Status.NO_GAIN
    assert result.winner.number == 0
    (told,) = [words for words in result.told if "not published" in words]
    assert "Trial 1 was 3.7" in told and "intra_op_threads" in told
    assert result.beside_load.startswith("others kept up to 1.0 of 2 cores busy in")


def test_settings_slower_beside_a_neighbour_are_not_told_as_held_back_for_the_load() -> None:
    machine = Machine(is_loaded=lambda run: True, beside_load={**BESIDE_LOAD, ONE_THREAD: 131.0})
    result = machine.run(1, were_trials_loaded=True)
    assert status(result) is Status.NO_GAIN
    assert result.beside_load == ""


def test_quiet_moments_are_looked_for_in_further_rounds_within_a_limit() -> None:
    machine = Machine(is_loaded=lambda run: True)
    machine.run(1, were_trials_loaded=True)
    assert machine.num_rounds == 2 * NUM_ROUNDS
    machine = Machine(is_loaded=lambda run: run < 2 * NUM_ROUNDS)
    assert status(machine.run(1, were_trials_loaded=True)) is Status.NO_GAIN
    assert machine.num_rounds > NUM_ROUNDS


def test_fewer_threads_that_are_faster_in_quiet_rounds_too_are_a_gain() -> None:
    machine = Machine(is_loaded=lambda run: run < 2, quiet={**QUIET, ONE_THREAD: 1100.0})
    result = machine.run(1, were_trials_loaded=True)
    assert status(result) is Status.IMPROVED
    assert result.comparison is not None and result.comparison.ratio == pytest.approx(1100 / 700, rel=0.05)


def test_what_does_not_depend_on_the_load_is_published_with_the_load_named() -> None:
    machine = Machine(is_loaded=lambda run: True)
    result = machine.run(3, 2, were_trials_loaded=True)
    assert result.winner.number == 2
    assert status(result) is Status.IMPROVED
    assert result.beside_load.startswith("others kept up to 1.0 of 2 cores busy in")


def test_a_config_from_any_kind_of_load_is_never_slower_on_a_quiet_machine() -> None:
    patterns = [lambda run: True, lambda run: False, lambda run: run % 2 == 0, lambda run: run % 5 < 3]
    for is_loaded in patterns:
        result = Machine(is_loaded=is_loaded).run(1, 3, 2, were_trials_loaded=True)
        assert QUIET[result.winner.settings] >= QUIET[OWN]


def test_where_only_one_contender_fits_the_time_the_one_above_suspicion_takes_the_place() -> None:
    result = Machine(is_loaded=lambda run: True).run(3, 2, were_trials_loaded=True, total_s=70.0)
    assert {record.number for record in result.records} == {0, 2}
    assert result.winner.number == 2


def test_a_single_disturbed_round_does_not_decide_against_a_gain() -> None:
    for run in range(6):
        machine = Machine(is_loaded=lambda number, run=run: number == run)
        result = machine.run(2)
        assert status(result) is Status.IMPROVED and result.comparison is not None, run
        assert result.comparison.ratio == pytest.approx(840 / 700, rel=0.02)
        assert result.beside_load == ""
        assert result.told[0].endswith("cores busy. The quiet rounds decided.")


def test_where_most_rounds_are_disturbed_all_of_them_count() -> None:
    machine = Machine(is_loaded=lambda run: run >= 2)
    result = machine.run(2)
    assert "The quiet rounds decided" not in result.told[0]
    assert len(counted(result.records)) == len(result.records)


def test_settings_that_failed_in_a_disturbed_round_have_failed() -> None:
    records = Machine().run(2).records
    loaded = Surroundings(window_s=8.0, usable_cpus=2.0, foreign_cpus=1.0)
    late = [replace(r, result=replace(r.result, surroundings=loaded)) if r.round == 2 else r for r in records]
    assert {record.round for record in counted(late)} == {0, 1}
    failed = [replace(r, result=replace(r.result, outcome=Outcome.OUT_OF_MEMORY)) if r.round == 2 else r for r in late]
    assert counted(failed) == tuple(failed)


def test_quiet_finals_say_nothing_of_load() -> None:
    result = Machine().run(2)
    assert (result.beside_load, result.told, result.doubt) == ("", (), "")


def test_disturbed_rounds_are_told() -> None:
    result = Machine(is_loaded=lambda run: run < 2).run(2)
    (told,) = result.told
    assert re.match(r"1 of \d+ rounds of the finals was disturbed, for instance: Others kept 1.0 of 2 cores", told)


def test_finals_that_contradict_quiet_trials_take_more_rounds_and_stay_in_doubt() -> None:
    machine = Machine(quiet={**QUIET, MORE_WORKERS: 4900.0})
    result = machine.run(2, trial_rates={0: 700.0, 2: 966.0})
    assert machine.num_rounds == 2 * NUM_ROUNDS
    assert re.match(r"In doubt: the finals say (7.0|6.9)", result.doubt)
    assert "single trials of the same settings said 1.38x" in result.doubt
    assert status(result) is Status.IMPROVED


def test_a_round_cut_down_to_one_contender_is_no_disturbed_round() -> None:
    """ "The time allowed 0 of 2 rounds" stood beside "2 of 2 rounds of the finals were disturbed"."""
    busy = Surroundings(window_s=8.0, usable_cpus=2.0, foreign_cpus=1.0)
    runs = [(0, 0), (0, 1), (1, 0)]
    records = [
        FinalRecord(
            round=round_index,
            number=number,
            settings=SETTINGS[number],
            result=measured(100.0, surroundings=busy),
            finished_at=datetime.now(UTC),
        )
        for round_index, number in runs
    ]
    assert disturbed_words(records).startswith("The only round of the finals was disturbed")
    own_alone = [record for record in records if record.number == 0]
    assert disturbed_words(own_alone).startswith("2 of 2 rounds of the finals were disturbed")


def test_disturbed_trials_do_not_speak_against_quiet_finals() -> None:
    machine = Machine()
    result = machine.run(2, trial_rates={0: 100.0, 2: 840.0}, were_trials_loaded=True)
    assert result.doubt == ""
    assert machine.num_rounds == NUM_ROUNDS


def test_the_spread_of_every_finalist_is_known() -> None:
    machine = Machine(is_loaded=lambda run: run == 0)
    machine.run(2)
    found = {one.trial: one for one in steadiness_of(machine.records)}
    assert found.keys() == {0, 2}
    assert max(one.spread for one in found.values()) > 0.1 > min(one.spread for one in found.values())
    assert found[0].num_rounds == machine.num_rounds
