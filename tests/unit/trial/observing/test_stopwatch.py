from __future__ import annotations

import pytest

from autotune.trial.observing.stopwatch import Stopwatch


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_each_second_counts_for_the_innermost_part_alone() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    watch.enter("all")
    clock.now_s = 1.0
    watch.enter("inner")
    clock.now_s = 4.0
    watch.leave()
    clock.now_s = 6.0
    watch.leave()
    assert dict(watch.seconds) == pytest.approx({"all": 3.0, "inner": 3.0})


def test_a_call_that_began_before_the_watch_ends_nothing() -> None:
    watch = Stopwatch(Clock())
    watch.leave()
    assert not watch.is_running and not watch.seconds
