"""The collector of a forked trial: the server's heap is frozen for the fork alone."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator

import pytest

from autotune.trial.start import forked_heap


@pytest.fixture(autouse=True)
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(forked_heap, "_shares_heap", False)
    gc.collect()  # so that none of its own comes in between
    yield
    gc.unfreeze()
    gc.enable()


def test_what_the_script_froze_itself_stays_frozen() -> None:
    assert forked_heap.freeze() and gc.get_freeze_count() > 0
    assert not forked_heap.freeze()
    forked_heap.thaw()
    assert forked_heap.freeze()


def test_nothing_is_added_to_what_the_script_froze_itself() -> None:
    gc.freeze()
    num_frozen = gc.get_freeze_count()
    later = [[number] for number in range(1000)]
    assert not forked_heap.freeze()
    assert gc.get_freeze_count() <= num_frozen and len(later) == 1000


def cycle(kept: list[object]) -> None:
    class Part:
        def __del__(self) -> None:
            kept.append("collected")

    part = Part()
    part.itself = part  # type: ignore[attr-defined]


def test_the_first_collection_of_a_trial_comes_when_it_is_asked_for_and_once() -> None:
    forked_heap.freeze()
    kept: list[object] = []
    cycle(kept)
    forked_heap.thaw()
    assert kept == []
    forked_heap.settle()
    assert kept == ["collected"]
    cycle(kept)
    forked_heap.settle()
    assert kept == ["collected"]


def test_it_comes_before_a_process_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[Callable[[], None]] = []
    monkeypatch.setattr(os, "register_at_fork", lambda *, before: registered.append(before))
    kept: list[object] = []
    cycle(kept)
    forked_heap.thaw()
    assert kept == []
    registered[0]()
    assert kept == ["collected"]


def test_a_trial_that_shares_no_heap_is_left_alone() -> None:
    kept: list[object] = []
    cycle(kept)
    forked_heap.settle()
    assert kept == []


def test_a_collector_that_the_script_has_switched_off_stays_off_until_it_is_on_again() -> None:
    kept: list[object] = []
    gc.disable()
    cycle(kept)
    forked_heap.thaw()
    forked_heap.settle()
    assert kept == [] and not gc.isenabled()
    gc.enable()
    forked_heap.settle()
    assert kept == ["collected"]
