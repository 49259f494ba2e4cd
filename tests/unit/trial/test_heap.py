"""The collector of a forked trial: the server's heap is frozen for the fork alone."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from autotune.trial import heap


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_what_the_script_froze_itself_stays_frozen() -> None:
    assert heap.freeze() and gc.get_freeze_count() > 0
    assert not heap.freeze()
    heap.thaw()
    assert heap.freeze()


def test_nothing_is_added_to_what_the_script_froze_itself() -> None:
    gc.freeze()
    num_frozen = gc.get_freeze_count()
    later = [[number] for number in range(1000)]
    assert not heap.freeze()
    assert gc.get_freeze_count() <= num_frozen and len(later) == 1000


def cycle(kept: list[object]) -> None:
    class Part:
        def __del__(self) -> None:
            kept.append("collected")

    part = Part()
    part.itself = part  # type: ignore[attr-defined]


def test_the_first_collection_comes_with_the_thaw() -> None:
    heap.freeze()
    kept: list[object] = []
    cycle(kept)
    heap.thaw()
    assert kept == ["collected"]


def test_a_collector_that_the_script_has_switched_off_stays_off() -> None:
    kept: list[object] = []
    gc.disable()
    cycle(kept)
    heap.thaw()
    assert kept == [] and not gc.isenabled()
