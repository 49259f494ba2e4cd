from __future__ import annotations

import pytest

from autotune.store.retry import Patience


class Clock:
    """Time that passes only by sleeping and working."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.pauses: list[float] = []
        self.told_at_s: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds

    def patience(self, retry_for_s: float = 30.0) -> Patience:
        return Patience(retry_for_s=retry_for_s, on_wait=self.on_wait, clock=lambda: self.now_s, sleep=self.sleep)

    def on_wait(self) -> None:
        self.told_at_s.append(self.now_s - 1000)


def fail(times: int, error: Exception, calls: list[int]) -> str:
    calls.append(1)
    if len(calls) <= times:
        raise error
    return "done"


def test_what_works_is_done_once_without_a_pause() -> None:
    clock, calls = Clock(), []
    assert clock.patience().attempt(lambda: fail(0, OSError(), calls), lambda error: True) == "done"
    assert (len(calls), clock.pauses) == (1, [])


def test_pauses_double_up_to_two_seconds() -> None:
    clock, calls = Clock(), []
    assert clock.patience().attempt(lambda: fail(7, OSError(), calls), lambda error: True) == "done"
    assert clock.pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])


def test_after_the_time_for_it_the_last_error_is_raised() -> None:
    clock, calls = Clock(), []
    with pytest.raises(OSError, match="gone"):
        clock.patience().attempt(lambda: fail(10**6, OSError("gone"), calls), lambda error: True)
    assert 27 < clock.now_s - 1000 <= 30


def test_an_attempt_that_takes_long_by_itself_is_not_repeated() -> None:
    clock, calls = Clock(), []

    def slow() -> str:
        clock.now_s += 60
        return fail(1, OSError("locked"), calls)

    with pytest.raises(OSError, match="locked"):
        clock.patience().attempt(slow, lambda error: True)
    assert (len(calls), clock.pauses, clock.told_at_s) == (1, [], [])


def test_an_error_that_does_not_pass_is_raised_at_once() -> None:
    clock, calls = Clock(), []
    with pytest.raises(ValueError, match="full"):
        clock.patience().attempt(lambda: fail(1, ValueError("full"), calls), lambda error: isinstance(error, OSError))
    assert (len(calls), clock.pauses) == (1, [])


def test_without_time_there_is_one_attempt() -> None:
    clock, calls = Clock(), []
    with pytest.raises(OSError, match="gone"):
        clock.patience(0).attempt(lambda: fail(1, OSError("gone"), calls), lambda error: True)
    assert len(calls) == 1


def test_a_long_wait_is_told_of_once() -> None:
    clock = Clock()
    with pytest.raises(OSError, match="gone"):
        clock.patience().attempt(lambda: fail(10**6, OSError("gone"), []), lambda error: True)
    assert len(clock.told_at_s) == 1 and 5 <= clock.told_at_s[0] < 7.1


def test_a_short_wait_is_not_told_of() -> None:
    clock, calls = Clock(), []
    clock.patience().attempt(lambda: fail(4, OSError("gone"), calls), lambda error: True)
    assert clock.told_at_s == []
