"""What workers note of their batches, read in the process that trains; here all in one, on a clock of its own."""

from __future__ import annotations

import multiprocessing
import types

import pytest

from autotune.measure.build_times import BuildTimes
from autotune.trial.loader.gate import Gate, _Passage
from autotune.trial.meter import build_log
from autotune.trial.meter.build_log import BuildLog


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def passes(self, seconds: float) -> str:
        self.now_s += seconds
        return "batch"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(build_log, "time", types.SimpleNamespace(monotonic=clock.monotonic))
    return clock


def test_nothing_is_built_at_first(clock: Clock) -> None:
    assert BuildLog(None, 3, 2).built().num == 0.0


def test_batches_of_all_workers_are_counted(clock: Clock) -> None:
    log = BuildLog(multiprocessing.get_context("spawn"), 2, 2)
    assert [log.build(worker_id, clock.passes, 0.5) for worker_id in (0, 1, 1)] == ["batch"] * 3
    assert log.built().num == 3.0


def test_the_times_are_those_of_the_batches_that_are_finished(clock: Clock) -> None:
    log = BuildLog(None, 3, 4)
    log.build(0, clock.passes, 0.5)
    log.build(2, clock.passes, 1.5)
    seen = []
    log.build(1, lambda: seen.append(log.built().times))
    assert seen == [
        BuildTimes(num_workers=3, prefetch_factor=4, num_finished=2, total_s=2.0, total_squared_s2=0.25 + 2.25)
    ]


def test_a_batch_that_is_being_built_counts_by_the_mean_time_so_far(clock: Clock) -> None:
    log = BuildLog(None, 2, 2)
    log.build(0, clock.passes, 1.0)
    log.build(0, clock.passes, 3.0)
    seen = []

    def build() -> None:
        for seconds in (0.0, 1.0, 1.0, 5.0):
            clock.passes(seconds)
            seen.append(log.built().num)

    log.build(1, build)
    assert seen == pytest.approx([2.0, 2.5, 3.0, 3.0])


def test_a_batch_that_cannot_be_built_does_not_count(clock: Clock) -> None:
    log = BuildLog(None, 1, 2)
    log.build(0, clock.passes, 1.0)

    def fail() -> None:
        clock.passes(1.0)
        raise KeyError("no such file")

    with pytest.raises(KeyError):
        log.build(0, fail)
    clock.passes(0.5)
    assert log.built().num == 1.0


def test_a_loader_that_a_dataset_reads_itself_neither_waits_nor_counts(clock: Clock) -> None:
    gate = Gate(None, 2, 2)
    passage = _Passage(gate, 1, num_free=0)
    inner = passage.through(lambda fetcher, index: clock.passes(0.1))
    outer = passage.through(lambda fetcher, index: [inner(fetcher, index) for _ in range(3)])
    gate.open()
    assert outer(None, 0) == ["batch"] * 3
    assert gate.log.built().num == 1.0


def test_a_batch_that_need_not_wait_is_not_counted(clock: Clock) -> None:
    gate = Gate(None, 1, 2)
    fetch = _Passage(gate, 0, num_free=1).through(lambda fetcher, index: clock.passes(0.1))
    assert fetch(None, 0) == "batch"  # the gate is closed
    gate.open()
    fetch(None, 1)
    assert gate.log.built().num == 1.0
