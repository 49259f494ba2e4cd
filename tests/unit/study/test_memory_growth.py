"""What is told of memory that grows after a window: by whom it is seen, and when it is not told."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.measure.block import Block, Phase
from autotune.model.outcome import Outcome
from autotune.model.result import RankResult, RankStatus, TrialResult
from autotune.study.memory_growth import growth_notes
from autotune.units import GIB, MIB


def final(*, num_batches: int = 200, **changes: Any) -> TrialResult:
    block = Block(
        phase=Phase.WINDOW,
        num_steps=num_batches,
        num_micro_batches=num_batches,
        num_samples=8.0 * num_batches,
        duration_s=5.0,
        data_wait_s=0.0,
    )
    values: dict[str, Any] = {
        "rank": 0,
        "world_size": 1,
        "status": RankStatus.MEASURED,
        "blocks": (block,),
        "held_host_bytes": 2 * GIB,
        "host_growth_bytes": 100 * MIB,
        "epoch_micro_batches": 20_000,
    }
    return TrialResult(outcome=Outcome.INTERRUPTED, reason="", wall_s=9.0, ranks=(RankResult(**{**values, **changes}),))


def test_a_host_that_would_pass_its_cap_within_an_epoch_is_told_with_the_batch() -> None:
    (note,) = growth_notes([final(), final(host_growth_bytes=120 * MIB)], 8 * GIB)
    assert "grows by 550.0 MiB in 1,000 batches" in note
    assert "after 11,170 of the 20,000 batches" in note and "12.7 GiB" in note


@pytest.mark.parametrize(
    ("changes", "cap"),
    [
        ({"host_growth_bytes": MIB}, 8 * GIB),
        ({"host_growth_bytes": None}, 8 * GIB),
        ({"epoch_micro_batches": None}, 8 * GIB),
        ({"epoch_micro_batches": 500}, 8 * GIB),
        ({"blocks": ()}, 8 * GIB),
        ({}, 64 * GIB),
        ({}, None),
    ],
)
def test_nothing_is_told_without_a_trend_or_where_the_cap_is_far(changes: dict[str, Any], cap: int | None) -> None:
    assert not list(growth_notes([final(**changes)], cap))
    assert not list(growth_notes([], cap))


def test_a_growth_in_one_of_two_runs_is_no_trend() -> None:
    assert not list(growth_notes([final(), final(host_growth_bytes=0)], 8 * GIB))


@pytest.mark.parametrize(("factor", "num_notes"), [(1.8, 1), (1.02, 0), (None, 0)])
def test_the_longest_batch_is_told_where_it_is_longer(factor: float | None, num_notes: int) -> None:
    notes = list(growth_notes([final(longest_batch_factor=factor, num_further_batches=240)], None))
    assert len(notes) == num_notes
    assert all("longest of 240 further batches, with 1.8 times the mean" in note for note in notes)
