"""Waiting for a run, and for the tuners of other machines."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from autotune.store.records import Owner
from autotune.study.stop import StopRequest, wait_for
from autotune.study.together import wait_for_result
from tests.unit.report.examples import search_result


class Endless:
    """A run that ends when it is told to."""

    def __init__(self):
        self.is_cancelled = False

    def poll(self):
        return self.is_cancelled

    def cancel(self):
        self.is_cancelled = True


def test_a_run_is_ended_when_whoever_waits_for_it_cannot_go_on():
    run = Endless()

    def fails():
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        wait_for(run, StopRequest(), now_and_then=fails)
    assert run.is_cancelled


def test_a_second_stop_ends_the_run():
    run, stop = Endless(), StopRequest()
    wait_for(run, stop, now_and_then=stop.request)
    assert run.is_cancelled and stop.level >= 2


OTHER = Owner(host="gpu-7", boot_id="b", pid=1, start_ticks=1)


class Shared:
    """A study that another tuner finishes, or leaves, after so many looks."""

    def __init__(self, *, looks, publishes):
        self.left, self.publishes = looks, publishes

    def live_owners(self, name, *, now):
        assert now <= datetime.now(UTC)
        self.left -= 1
        return (OTHER,) if self.left > 0 else ()

    def study(self, name):
        is_over = self.left <= 0 and self.publishes
        result = search_result().document() if is_over else None
        return SimpleNamespace(status="improved" if is_over else "running", result=result)


def test_the_result_of_the_last_tuner_is_the_result_of_all():
    said, naps = [], []
    result = wait_for_result("train", Shared(looks=4, publishes=True), StopRequest(), said.append, sleep=naps.append)
    assert result is not None and result.document() == search_result().document()
    assert len(naps) == 3
    assert ["gpu-7" in event.message for event in said] == [True]


def test_when_the_others_are_gone_without_a_result_there_is_none():
    shared = Shared(looks=2, publishes=False)
    assert wait_for_result("train", shared, StopRequest(), lambda event: None, sleep=lambda seconds: None) is None


def test_a_stop_ends_the_wait():
    stop = StopRequest()
    shared = Shared(looks=10**9, publishes=False)
    assert wait_for_result("train", shared, stop, lambda event: None, sleep=lambda seconds: stop.request()) is None


def test_asked_once_ends_at_once_what_would_save_nothing():
    run, stop = Endless(), StopRequest(saves=False)
    stop.request()
    wait_for(run, stop)
    assert run.is_cancelled


def test_a_run_that_is_of_no_use_by_itself_is_ended_by_the_first_stop():
    run, stop = Endless(), StopRequest()
    stop.request()
    wait_for(run, stop, ends_at=1)
    assert run.is_cancelled and stop.level == 1
