"""How often it is told how a running trial looks."""

from __future__ import annotations

from autotune.model.gauges import Gauges, TrialPhase
from autotune.study.progress import ProgressTeller


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


class Looked:
    """A run that counts how often somebody looked."""

    num_looks = 0

    def gauges(self):
        self.num_looks += 1
        return Gauges(phase=TrialPhase.WINDOW, num_steps=self.num_looks)


class Unseen:
    def gauges(self):
        return None


def test_a_run_that_is_looked_at_ten_times_a_second_is_told_of_once():
    clock, told, run = Clock(), [], Looked()
    teller = ProgressTeller(told.append, now=clock)
    for _ in range(32):
        teller.look(run)
        clock.now_s += 0.1
    assert [event.gauges.num_steps for event in told] == list(range(1, run.num_looks + 1))
    assert 3 <= run.num_looks <= 4


def test_where_nobody_looks_nothing_is_told():
    told = []
    ProgressTeller(told.append).look(Unseen())
    assert told == []


def test_a_trial_that_waits_for_quiet_is_told_of_at_once():
    told = []
    ProgressTeller(told.append).waits()
    assert [event.gauges.phase for event in told] == [TrialPhase.WAITING]
