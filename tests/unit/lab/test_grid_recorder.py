"""Recording a grid: the order of the turns, anchors, resumes, and what ends a recording. No process, no clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from autotune.errors import EveryTrialFailedError, HostError, UsageError
from autotune.lab import recording
from autotune.lab.function_runner import FinishedRun, FunctionRunner
from autotune.lab.grid_file import create_grid, open_grid, read_grid
from autotune.lab.grid_order import CELLS_PER_ANCHOR
from autotune.lab.grid_recorder import Recorder, num_left, num_measured, slim
from autotune.measure.block import Block, Phase
from autotune.model.events import Notice, TrialFinished
from autotune.model.outcome import Outcome
from autotune.model.result import RaisedError, RankResult, RankStatus, StartKind, TrialResult
from autotune.runner.live_runner import why_fresh
from autotune.study.jobs import Jobs
from autotune.study.stop import StopRequest
from autotune.study.target import make_target
from tests.unit.facts import cpu_machine, script_facts, search_spec
from tests.unit.grids import INTERRUPTED, header, measured, ok, over_cap

TRIAL_S = 5.0
CRASHED = TrialResult(outcome=Outcome.CRASHED, reason="It raised.", log_tail="Traceback")


class Bench:
    """One recording with everything that the tuner has, over a callable and a clock that only trials move."""

    def __init__(self, path, answer=measured, **changes):
        self.path, self.answer = path, answer
        self.now = 0.0
        self.asked = []
        self.windows = []
        self.events = []
        self.stop = StopRequest()
        if not path.exists():
            create_grid(path, header(**changes))

    def record(self, *, repeats=2, deadline=1e9):
        with open_grid(self.path) as file:
            jobs = Jobs(
                spec=search_spec(start=file.header.start),
                target=make_target(search_spec(memory_cap="400MiB"), cpu_machine().device),
                facts=file.header.facts,
                script_settings=file.header.natural,
            )
            Recorder(
                file,
                repeats=repeats,
                jobs=jobs,
                runner=self,
                deadline=deadline,
                stop=self.stop,
                on_event=self.events.append,
                now=lambda: self.now,
            ).run()
            return num_left(file, repeats)

    def start(self, job):
        self.now += TRIAL_S
        self.asked.append(job.request.settings)
        self.windows.append(job.request.window.max_window_s)
        return FunctionRunner(self.answer, script_facts()).start(job)

    @property
    def turns(self):
        return [(r.cell, r.round, r.anchor) for r in read_grid(self.path).records]


class LiveBench(Bench):
    """A bench with a process that goes on with settings as `LiveRunner` does, and ends with a failure."""

    process = None

    @property
    def has_process(self):
        return self.process is not None

    def can_switch(self, before, job):
        return job.serves and not why_fresh(before, job)

    def goes_on(self, job):
        return self.has_process and self.can_switch(self.process, job)

    def start(self, job):
        is_live = self.goes_on(job)
        self.now += 1.0 if is_live else 20.0
        self.asked.append(job.request.settings)
        result = FunctionRunner(self.answer, script_facts()).start(job).result()
        result = replace(result, start=StartKind.LIVE if is_live else StartKind.COLD, wall_s=1.0 if is_live else 20.0)
        self.process = (self.process if is_live else job) if result.outcome is Outcome.OK else None
        return FinishedRun(None, result)

    def close(self):
        self.process = None

    @property
    def starts(self):
        return [record.result.start for record in read_grid(self.path).records]


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path / "grid.jsonl")


def many_cells():
    """A header with more cells than lie between two turns of the anchors."""
    made = header()
    return {"cells": tuple({"num_workers": n} if n else {} for n in range(30)), "natural": made.natural}


def test_every_cell_is_measured_once_per_round_and_rounds_follow_each_other(bench):
    assert bench.record() == 0
    own = [(cell, number) for cell, number, anchor in bench.turns if anchor is None]
    assert sorted(own) == [(cell, number) for cell in range(8) for number in range(2)]
    assert [number for _, number in own] == [0] * 8 + [1] * 8
    first, second = [c for c, n in own if n == 0], [c for c, n in own if n == 1]
    assert first != second and first != sorted(first)
    assert read_grid(bench.path).missing == ()


def test_the_order_is_the_seeds(tmp_path):
    orders = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        bench = Bench(tmp_path / name, seed=seed)
        bench.record()
        orders.append(bench.turns)
    assert orders[0] == orders[1] != orders[2]


def test_anchors_are_the_baseline_and_what_was_fastest_when_they_were_first_due(tmp_path):
    bench = Bench(tmp_path / "grid.jsonl", lambda s: ok(100.0 + s.num_workers), **many_cells())
    bench.record()
    anchors = [(anchor, cell) for cell, _, anchor in bench.turns if anchor is not None]
    slots = [slot for slot, _ in anchors]
    assert Counter(slots) == {0: 1} | dict.fromkeys(range(1, 7), 2)
    others = {cell for _, cell in anchors if cell != 0}
    assert len(others) == 1
    before_first = [cell for cell, _, anchor in bench.turns if anchor is None][:CELLS_PER_ANCHOR]
    assert others == {max(before_first)}
    assert bench.turns[0] == (0, 0, 0) and bench.turns[-1][2] == 6


@pytest.mark.parametrize("num_before", [0, 1, 5, 11, 13])
def test_a_resume_measures_exactly_what_is_left_in_the_same_order(tmp_path, num_before):
    whole = Bench(tmp_path / "whole.jsonl")
    whole.record()
    parts = Bench(tmp_path / "parts.jsonl")
    parts.record(deadline=num_before * TRIAL_S + 3.5)
    assert len(parts.asked) == num_before
    Bench(parts.path).record()
    assert parts.turns == whole.turns


def test_a_complete_recording_runs_nothing(bench):
    bench.record()
    again = Bench(bench.path)
    assert again.record() == 0 and again.asked == []


def test_more_repeats_go_on_with_further_rounds(bench):
    bench.record(repeats=1)
    again = Bench(bench.path)
    again.record(repeats=3)
    own = Counter((cell, number) for cell, number, anchor in again.turns if anchor is None)
    assert own == dict.fromkeys([(cell, number) for cell in range(8) for number in range(3)], 1)


def test_time_ends_a_recording_before_a_trial_that_would_not_come_to_its_end(bench):
    left = bench.record(deadline=30.0)
    assert bench.now <= 30.0
    with open_grid(bench.path) as file:
        assert left == 16 - num_measured(file, 2) > 0


def test_a_stop_ends_a_recording_after_the_running_trial(tmp_path):
    def answer(settings):
        bench.stop.level = len(bench.asked) == 4
        return measured(settings)

    bench = Bench(tmp_path / "grid.jsonl", answer)
    bench.record()
    assert len(bench.turns) == 4


def test_what_was_ended_from_outside_is_not_recorded_and_measured_later(tmp_path):
    def answer(settings):
        return INTERRUPTED if len(bench.asked) in (3, 6) else measured(settings)

    bench = Bench(tmp_path / "grid.jsonl", answer)
    assert bench.record() == 0
    assert all(r.result.outcome is not Outcome.INTERRUPTED for r in read_grid(bench.path).records)
    assert sum(isinstance(event, Notice) for event in bench.events) == 2


def test_a_host_that_ends_one_trial_after_the_other_is_not_recorded_on(tmp_path):
    bench = Bench(tmp_path / "grid.jsonl", lambda _: INTERRUPTED)
    with pytest.raises(HostError, match="3 trials in a row"):
        bench.record()


def test_a_crash_counts_only_when_it_happens_twice(tmp_path):
    def answer(settings):
        return CRASHED if len(bench.asked) == 3 else measured(settings)

    bench = Bench(tmp_path / "grid.jsonl", answer)
    bench.record()
    records = read_grid(bench.path).records
    assert all(r.result.outcome is not Outcome.CRASHED for r in records)
    assert [note for r in records for note in r.result.notes] == ["A first run ended crashed: It raised."]


def test_settings_that_crash_twice_are_recorded_as_that(tmp_path):
    bench = Bench(tmp_path / "grid.jsonl", lambda s: CRASHED if s.num_workers == 1 else measured(s))
    assert bench.record() == 0
    outcomes = Counter(r.result.outcome for r in read_grid(bench.path).records if r.anchor is None)
    assert outcomes[Outcome.CRASHED] == 4


@pytest.mark.parametrize("outcome", [Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.INVALID])
def test_a_baseline_that_fails_twice_ends_the_recording_and_is_not_recorded(tmp_path, outcome):
    bench = Bench(tmp_path / "grid.jsonl", lambda _: replace(CRASHED, outcome=outcome))
    with pytest.raises(EveryTrialFailedError, match="It raised") as caught:
        bench.record()
    assert "Traceback" in caught.value.hint
    assert bench.turns == [] and len(bench.asked) == 2


def test_a_crash_for_whose_second_run_there_is_no_time_is_not_recorded(tmp_path):
    bench = Bench(tmp_path / "grid.jsonl", lambda _: CRASHED)
    assert bench.record(deadline=TRIAL_S + 4.0) == 16
    assert bench.turns == [] and len(bench.asked) == 1


def test_a_baseline_over_the_cap_is_recorded_as_that(tmp_path):
    bench = Bench(tmp_path / "grid.jsonl", lambda s: measured(s) if s.num_workers else over_cap())
    assert bench.record() == 0
    assert not read_grid(bench.path).is_feasible(header().settings[0])


def test_every_trial_is_measured_in_full(tmp_path):
    bench = Bench(tmp_path / "grid.jsonl", window_s=3.0)
    bench.record()
    assert sorted(set(bench.windows)) == pytest.approx(
        [3.0, 4.8]
    )  # four workers: blocks of four steps of 0.1 s, twelve of them
    assert all(
        event.result.outcome is not Outcome.RACED_OUT for event in bench.events if isinstance(event, TrialFinished)
    )


def test_without_a_wish_the_window_is_that_of_a_search(bench):
    bench.record()
    assert set(bench.windows) == {8.0}


def test_a_record_holds_no_log_and_no_raw_blocks_but_their_summary(tmp_path):
    block = Block(
        phase=Phase.WINDOW, num_steps=1, num_micro_batches=1, num_samples=10.0, duration_s=0.1, data_wait_s=0.0
    )
    rank = RankResult(
        rank=0, world_size=1, status=RankStatus.MEASURED, blocks=(block,) * 8, facts=script_facts(), notes=("kept",)
    )
    full = replace(ok(100.0), ranks=(rank,), log_tail="secret words")
    bench = Bench(tmp_path / "grid.jsonl", lambda _: full)
    bench.record(repeats=1)
    record = read_grid(bench.path).records[0]
    assert record.result == slim(full)
    assert (record.result.log_tail, record.result.ranks[0].blocks, record.result.ranks[0].facts) == ("", (), None)
    assert record.result.ranks[0].notes == ("kept",)
    assert record.blocks[0].num_blocks == 8 and record.blocks[0].rate_deviation_ratio == pytest.approx(0.0)
    assert b"secret words" not in bench.path.read_bytes()


def test_a_record_holds_no_secret_of_an_errors_words(tmp_path):
    reason = "ValueError: token=hunter2 is not valid"
    error = RaisedError(kind="ValueError", message="token=hunter2 is not valid", is_out_of_memory=False)
    rank = RankResult(rank=0, world_size=1, status=RankStatus.RAISED, error=error)
    failed = replace(CRASHED, reason=reason, ranks=(rank,))
    bench = Bench(tmp_path / "grid.jsonl", lambda s: failed if s.num_workers == 1 else measured(s))
    bench.record(repeats=1)
    assert b"token=***" in bench.path.read_bytes()
    assert b"hunter2" not in bench.path.read_bytes()
    told = [event.result for event in bench.events if isinstance(event, TrialFinished)]
    assert "hunter2" not in repr([(result.reason, result.notes) for result in told])


def test_a_folder_that_is_not_there_is_known_before_the_script_is_run(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "_open_target", lambda *_: pytest.fail("something was begun"))
    options = recording.RecordOptions(out=tmp_path / "none" / "grid.jsonl", limit_s=60.0)
    with pytest.raises(UsageError, match="its folder is not there"):
        recording.record(search_spec(), options, on_event=lambda event: None)


@pytest.fixture
def live(tmp_path):
    return LiveBench(tmp_path / "grid.jsonl", lambda s: ok(100.0 + s.num_workers), start="live")


def test_one_process_measures_all_cells_that_it_can_switch_to(live):
    assert live.record() == 0
    assert live.starts.count(StartKind.COLD) == 1 and live.starts[1:] == [StartKind.LIVE] * (len(live.starts) - 1)
    assert read_grid(live.path).num_by_start == {"live": 16}


def test_cells_that_cannot_be_switched_live_share_a_process_of_their_own(tmp_path):
    cells = tuple(
        {**({"num_workers": n} if n else {}), **({"omp_wait_policy": "passive"} if passive else {})}
        for n in range(5)
        for passive in (False, True)
    )
    bench = LiveBench(tmp_path / "grid.jsonl", lambda s: ok(100.0 + s.num_workers), start="live", cells=cells)
    assert bench.record(repeats=2) == 0
    assert bench.starts.count(StartKind.COLD) == 3  # The second round begins in the process that ended the first.
    assert bench.asked[0].omp_wait_policy.value == "default"


def test_a_recording_of_fresh_processes_keeps_its_order_beside_a_runner_that_can_switch(tmp_path):
    plain, fresh = Bench(tmp_path / "a"), LiveBench(tmp_path / "b")
    plain.record()
    fresh.record()
    assert plain.turns == fresh.turns and set(fresh.starts) == {StartKind.COLD}


def test_a_cell_over_the_cap_is_recorded_once_a_round_and_confirmed_once_in_a_new_process(tmp_path):
    bench = LiveBench(tmp_path / "grid.jsonl", measured, start="live")
    assert bench.record() == 0
    records = [record for record in read_grid(bench.path).records if record.anchor is None]
    over = [record for record in records if record.result.outcome is Outcome.OVER_CAP]
    assert len(over) == 4 and len({record.cell for record in over}) == 2
    assert {record.cell for record in over if record.result.start is StartKind.COLD} == {r.cell for r in over}
    assert len(bench.turns) < len(bench.asked) <= len(bench.turns) + 2


def test_a_cell_that_is_over_the_cap_only_in_a_running_process_is_recorded_from_a_new_one(tmp_path):
    def answer(settings):
        over = replace(CRASHED, outcome=Outcome.OUT_OF_MEMORY)
        return over if settings.num_workers == 1 and bench.has_process else ok(100.0)

    bench = LiveBench(tmp_path / "grid.jsonl", answer, start="live")
    assert bench.record() == 0
    grid = read_grid(bench.path)
    assert {record.result.outcome for record in grid.records} == {Outcome.OK}
    assert any("A first run ended out_of_memory" in note for r in grid.records for note in r.result.notes)


def test_a_failure_in_a_running_process_counts_only_if_a_new_process_fails_too(tmp_path):
    invalid = replace(CRASHED, outcome=Outcome.INVALID)

    def answer(settings):
        return invalid if settings.num_workers == 1 and bench.has_process else ok(100.0)

    bench = LiveBench(tmp_path / "grid.jsonl", answer, start="live")
    assert bench.record(repeats=1) == 0
    again = [record.result for record in read_grid(bench.path).records if record.result.notes]
    assert again and {(result.outcome, result.start) for result in again} == {(Outcome.OK, StartKind.COLD)}


def test_a_live_recording_that_was_ended_goes_on_in_the_same_order(tmp_path, live):
    live.record()
    parts = LiveBench(tmp_path / "parts.jsonl", start="live")

    def answer(settings):
        parts.stop.level = len(parts.asked) == 6
        return live.answer(settings)

    parts.answer = answer
    assert 0 < parts.record() < 16
    LiveBench(parts.path, live.answer).record()
    assert parts.turns == live.turns


def test_the_time_for_a_cell_in_the_running_process_is_that_of_such_cells(live):
    live.record(deadline=20.0 + 5.0 + 3.5 + 20.0)
    assert len(live.asked) > 2


def test_a_script_that_ends_early_is_measured_again_within_its_steps(bench):
    early = replace(
        CRASHED,
        outcome=Outcome.INVALID,
        is_inconclusive=True,
        ranks=(RankResult(rank=0, world_size=1, status=RankStatus.ENDED, num_steps=40),),
    )
    bench.answer = lambda settings: early if len(bench.asked) == 1 else measured(settings)
    assert bench.record() == 0
    assert len(bench.asked) == len(bench.turns) + 1


def test_a_script_that_ends_earlier_still_is_measured_within_the_fewer_steps(bench):
    def early(num_steps):
        rank = RankResult(rank=0, world_size=1, status=RankStatus.ENDED, num_steps=num_steps)
        return replace(CRASHED, outcome=Outcome.INVALID, is_inconclusive=True, ranks=(rank,))

    ends = {1: early(40), 2: early(30)}
    bench.answer = lambda settings: ends.get(len(bench.asked)) or measured(settings)
    assert bench.record() == 0
    assert len(bench.asked) == len(bench.turns) + 2


def test_a_cell_that_ran_into_its_limit_tells_nothing_of_the_time_of_the_next(tmp_path):
    timed_out = replace(CRASHED, outcome=Outcome.TIMED_OUT, wall_s=300.0)
    bench = Bench(tmp_path / "grid.jsonl", lambda s: timed_out if s.num_workers else measured(s))
    bench.record(repeats=1)
    num_before = len(bench.turns)
    bench.record(repeats=2, deadline=bench.now + 240.0)
    assert len(bench.turns) > num_before
