"""Which requests a running process answers, and when a new process takes its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.model.outcome import Outcome
from autotune.model.result import Measurement, RankResult, RankStatus, StartKind, TrialResult
from autotune.protocol.job import TrialJob
from autotune.runner.live_runner import CHECK_EVERY, LiveRunner, why_fresh, why_moved
from autotune.settings import Group, OmpWaitPolicy, Precision, Settings
from tests.jobs import changed
from tests.unit.facts import script_facts
from tests.unit.runner.samples import job

OWN = Settings(batch_size=32)
ENDED = TrialResult(
    outcome=Outcome.INVALID, is_inconclusive=True, ranks=(RankResult(rank=0, world_size=1, status=RankStatus.ENDED),)
)


def measured(rate: float, low: float | None = None, high: float | None = None) -> TrialResult:
    measurement = Measurement(
        samples_per_second=rate,
        low=0.99 * rate if low is None else low,
        high=1.01 * rate if high is None else high,
        is_converged=True,
        is_nonstationary=False,
        is_primed=False,
        num_blocks=20,
        window_s=2.0,
        data_wait_fraction=0.0,
        compute_samples_per_second=None,
    )
    return TrialResult(outcome=Outcome.OK, measurement=measurement)


def asks(settings: Settings = OWN, **values: Any) -> TrialJob:
    return changed(job(), **{"settings": settings, "script_settings": OWN, "serves": True, **values})


class Process:
    """Gives results in order, and keeps what it was asked and whether it was ended."""

    def __init__(self, results: list[TrialResult], kind: StartKind) -> None:
        self.results, self.kind = results, kind
        self.asked: list[Settings | None] = []
        self.ends_by: list[float | None] = []
        self.is_ended, self.waits = False, True

    def answer(self, job: TrialJob) -> Answer:
        self.asked.append(job.request.settings)
        self.ends_by.append(job.ends_by)
        return Answer(self, replace(self.results.pop(0), start=self.kind))

    def next(self, job: TrialJob, number: int) -> Answer:
        assert not self.is_ended and number == len(self.asked)
        self.kind = StartKind.LIVE
        return self.answer(job)

    def end(self) -> None:
        self.is_ended = True


class Answer:
    """A run that is over."""

    def __init__(self, process: Process, result: TrialResult) -> None:
        self.process, self._result = process, result

    @property
    def serving(self) -> Process | None:
        is_over = self._result.outcome is Outcome.CRASHED or self._result.has_ended_early
        return None if is_over or not self.process.waits else self.process

    def poll(self) -> bool:
        return True

    def cancel(self) -> None:
        """Is over."""

    def gauges(self) -> None:
        return None

    def result(self, **_: Any) -> TrialResult:
        return self._result

    probe_result: Any = None


class Starter:
    """Starts processes with these results."""

    def __init__(self, *processes: list[TrialResult]) -> None:
        self.waiting = [Process(results, StartKind.COLD) for results in processes]
        self.started: list[Process] = []

    def start(self, job: TrialJob) -> Answer:
        assert all(process.is_ended or not process.results for process in self.started)
        self.started.append(self.waiting.pop(0))
        return self.started[-1].answer(job)

    def close(self) -> None:
        """Keeps nothing."""


def run(runner: LiveRunner, asked: TrialJob) -> TrialResult:
    run = runner.start(asked)
    while not run.poll():
        pass
    return run.result()


@pytest.mark.parametrize(
    ("settings", "values", "reason"),
    [
        (replace(OWN, num_workers=4, precision=Precision.BF16, intra_op_threads=3), {}, ""),
        (OWN, {"environment": (("OMP_NUM_THREADS", "3"),), "ends_by": 7.0}, ""),
        (replace(OWN, compile=True), {"start_limit_s": 227.0, "total_limit_s": 289.0}, ""),
        (replace(OWN, omp_wait_policy=OmpWaitPolicy.PASSIVE), {}, "omp_wait_policy: the OpenMP runtime reads it"),
        (replace(OWN, expandable_segments=True), {}, "expandable_segments: the allocator reads it"),
        (replace(OWN, num_workers=4), {"mapped": ("num_workers",)}, "num_workers: the script reads its arguments"),
        (replace(OWN, knobs=(("depth", "3"),)), {}, "knobs.depth: the script reads its own knobs"),
        (
            replace(OWN, precision=Precision.BF16),
            {"facts": script_facts(claims=(Group.PRECISION,))},
            "precision: the script applies it itself",
        ),
        (OWN, {"command": ("python", "other.py")}, "the script is started in another way"),
        (OWN, {"environment": (("OMP_WAIT_POLICY", "PASSIVE"),)}, "the script is started in another way"),
        (OWN, {"script_steps": 40}, "the script ends by itself"),
        (OWN, {"keeps_epochs": True}, "the script is started in another way"),
    ],
)
def test_a_request_for_a_new_process_says_why(settings: Settings, values: dict[str, Any], reason: str) -> None:
    found = why_fresh(asks(), asks(settings, **values))
    assert found.startswith(reason) and bool(found) is bool(reason)


def test_one_process_answers_several_requests_and_a_final_gets_a_new_one() -> None:
    starter = Starter([measured(100.0), measured(120.0), measured(110.0)], [measured(105.0)])
    runner = LiveRunner(starter)
    results = [run(runner, asks(replace(OWN, num_workers=number))) for number in range(3)]
    assert [result.start for result in results] == ["cold", "live", "live"]
    final = run(runner, replace(asks(), serves=False))
    assert final.start is StartKind.COLD and starter.started[0].is_ended
    runner.close()
    assert starter.started[1].is_ended


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.RACED_OUT])
def test_a_process_that_does_not_wait_is_replaced_and_its_last_line_says_why(outcome: Outcome) -> None:
    left = replace(measured(100.0), outcome=outcome, log_tail="epoch 1\n 3/80 [0:07]autotune: settings stay in force\n")
    starter = Starter([left], [measured(110.0), measured(120.0)])
    starter.waiting[0].waits = False
    runner = LiveRunner(starter)
    results = [run(runner, asks(replace(OWN, num_workers=number))) for number in range(3)]
    assert [(result.start, result.start_reason) for result in results] == [
        ("cold", ""),
        ("cold", "the process before ended after its measurement: settings stay in force"),
        ("live", ""),
    ]


@pytest.mark.parametrize("outcome", [Outcome.OVER_CAP, Outcome.INVALID, Outcome.TIMED_OUT])
def test_a_failure_ends_its_process_and_the_next_request_gets_a_new_one(outcome: Outcome) -> None:
    starter = Starter([measured(100.0), TrialResult(outcome=outcome)], [measured(90.0)])
    runner = LiveRunner(starter)
    results = [run(runner, asks(replace(OWN, num_workers=number))) for number in range(3)]
    assert [(result.outcome, result.start) for result in results] == [
        (Outcome.OK, "cold"),
        (outcome, "live"),
        (Outcome.OK, "cold"),
    ]
    assert starter.started[0].is_ended


def test_settings_that_meet_the_end_of_the_script_are_measured_in_a_new_process() -> None:
    """A script that catches its own errors ends as if it were through; only its last line tells why."""
    ended = replace(ENDED, log_tail="epoch 1\nRuntimeError: no room for a batch\n")
    runner = LiveRunner(Starter([measured(100.0), ended], [measured(90.0)]))
    run(runner, asks())
    result = run(runner, asks(replace(OWN, num_workers=2)))
    assert result.outcome is Outcome.OK and result.start is StartKind.COLD
    assert result.start_reason == "the script ended in the process before: RuntimeError: no room for a batch"


@pytest.mark.parametrize(("again", "num_processes"), [(101.0, 1), (80.0, 2)])
def test_a_process_is_replaced_when_its_first_settings_have_moved(again: float, num_processes: int) -> None:
    first = [measured(100.0)] + [measured(150.0)] * CHECK_EVERY + [measured(again), measured(160.0)]
    starter = Starter(first, [measured(170.0)])
    runner = LiveRunner(starter)
    results = [run(runner, asks(replace(OWN, num_workers=number))) for number in range(CHECK_EVERY + 2)]
    assert len(starter.started) == num_processes
    assert starter.started[0].asked[CHECK_EVERY + 1] == OWN
    assert "check" in results[-1].durations_s and "check" not in results[-2].durations_s
    assert ("had moved to 0.80" in results[-1].start_reason) is (num_processes == 2)


def test_a_check_may_take_as_long_as_the_trial_that_it_precedes():
    """With the limit of the process's first trial a check was ended at once, and the trial was begun again."""
    starter = Starter([measured(100.0)] * (CHECK_EVERY + 3))
    runner = LiveRunner(starter)
    for number in range(CHECK_EVERY + 2):
        run(runner, asks(replace(OWN, num_workers=number), ends_by=10.0 + number))
    [process] = starter.started
    check = process.asked.index(OWN, 1)
    assert process.ends_by[check] == process.ends_by[check + 1] == 10.0 + check


def test_a_rate_within_the_noise_has_not_moved() -> None:
    assert why_moved(measured(100.0, low=90.0, high=110.0), measured(92.0, low=85.0, high=99.0)) == ""
    assert "0.80" in why_moved(measured(100.0, low=99.0, high=101.0), measured(80.0, low=79.0, high=81.0))
    assert "crashed" in why_moved(measured(100.0), TrialResult(outcome=Outcome.CRASHED))


def test_kernels_of_attention_in_a_graph_of_the_scripts_own_need_a_new_process() -> None:
    before = asks(facts=script_facts(own_compile=True))
    reason = why_fresh(before, changed(before, settings=replace(OWN, sdpa_backend="flash")))
    assert reason.startswith("sdpa_backend: a graph of the script's own")
    plain = asks(facts=script_facts())
    assert why_fresh(plain, changed(plain, settings=replace(OWN, sdpa_backend="flash"))) == ""


def test_what_the_tuner_alone_reads_of_a_job_asks_for_no_new_process() -> None:
    later = replace(asks(settings=replace(OWN, precision="bf16")), own_skipped_share=0.3, start_limit_s=99.0)
    assert why_fresh(asks(), later) == ""


def test_a_process_can_go_on_with_a_job_that_serves_and_changes_nothing_read_at_the_start() -> None:
    runner, own = LiveRunner(Starter()), asks()
    assert runner.can_switch(own, changed(own, settings=replace(OWN, num_workers=2)))
    assert not runner.can_switch(own, changed(own, settings=replace(OWN, expandable_segments=True)))
    assert not runner.can_switch(own, replace(own, serves=False))
