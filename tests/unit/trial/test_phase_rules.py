"""When the phases before the window are over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.measure.block import Block, Phase
from autotune.measure.build_times import BuildTimes
from autotune.trial.meter import phase_rules
from autotune.trial.meter.build_log import Built
from autotune.trial.meter.measuring_plan import Plan
from tests.unit.trial.plans import PLAN


def ramp(*steps_s: float) -> list[Block]:
    values = {"num_steps": 1, "num_micro_batches": 1, "num_samples": 8.0, "data_wait_s": 0.0, "num_skipped_steps": 0}
    return [Block(phase=Phase.RAMP, duration_s=step_s, **values) for step_s in steps_s]


def is_steady(
    blocks: list[Block],
    plan: Plan = PLAN,
    *,
    num_updates: int = 100,
    is_queue_empty: bool = True,
    num_unchanged: int | None = None,
) -> bool:
    num_unchanged = len(blocks) if num_unchanged is None else num_unchanged
    return phase_rules.is_steady(blocks, plan, num_updates, is_queue_empty=is_queue_empty, num_unchanged=num_unchanged)


def test_one_slow_step_does_not_say_how_long_a_block_is() -> None:
    assert not is_steady(ramp(0.012))
    assert not is_steady(ramp(0.012, *[0.0004] * 50))
    assert is_steady(ramp(0.012, *[0.0004] * 100))


def test_a_ramp_of_long_steps_is_one_batch_of_every_worker() -> None:
    assert is_steady(ramp(0.1))
    plan = replace(PLAN, num_workers=4, num_queued=8)
    assert not is_steady(ramp(0.1, 0.1, 0.1), plan)
    assert is_steady(ramp(0.1, 0.1, 0.1, 0.1), plan)


def test_a_queue_that_was_full_is_emptied_however_long_its_steps_are() -> None:
    plan = replace(PLAN, num_workers=2, num_queued=8)
    enough = phase_rules.DRAIN_QUEUES * 8 + 2
    assert not is_steady(ramp(*[1.0] * (enough - 1)), plan, is_queue_empty=False)
    assert is_steady(ramp(*[1.0] * enough), plan, is_queue_empty=False)


@pytest.mark.parametrize(("num_updates", "is_over"), [(9, False), (10, True)])
def test_a_script_of_few_steps_does_not_spend_them_on_the_ramp(num_updates: int, is_over: bool) -> None:
    assert is_steady(ramp(0.001), replace(PLAN, script_steps=40), num_updates=num_updates) is is_over


def test_the_ramp_lasts_until_no_worker_s_batch_needs_new_page_locked_memory() -> None:
    plan = replace(PLAN, num_workers=4, num_queued=16)
    assert not is_steady(ramp(*[0.1] * 30), plan, num_unchanged=3)
    assert is_steady(ramp(*[0.1] * 30), plan, num_unchanged=4)
    assert is_steady(ramp(*[0.1] * 101), plan, num_unchanged=0)
    assert is_steady(ramp(*[0.1] * 30), replace(plan, script_steps=120), num_updates=30, num_unchanged=0)


@pytest.mark.parametrize(
    ("steps_s", "is_over"),
    [
        ((9.0, 1.4, 1.4), False),
        ((9.0, 1.4, 1.4, 1.41), True),
        ((9.0, 1.4, 1.4, 1.45), True),
        ((9.0, 1.4, 1.4, 1.5), False),
        ((0.9, 0.5, 0.5, 0.5), False),
        ((0.9, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5), True),
    ],
)
def test_three_long_steps_alike_end_the_warm_up_and_shorter_ones_take_six(
    steps_s: tuple[float, ...], is_over: bool
) -> None:
    """The steps of nanoGPT take 1.4 s, and are steady from the second on."""
    assert phase_rules.is_warm(ramp(*steps_s), 1.0, PLAN, len(steps_s)) is is_over


def built(num: float) -> Built:
    return Built(num, BuildTimes(num_workers=4, prefetch_factor=2, num_finished=0, total_s=0.0, total_squared_s2=0.0))


@pytest.mark.parametrize(
    ("steps_s", "num_built", "are_needless"),
    [
        ((8.0, 8.0, 8.0, 8.0), 8.0, True),
        ((8.0, 8.0, 8.0, 8.0), 7.0, False),
        ((0.1, 0.1, 0.1, 0.1), 12.0, False),
        ((8.0, 8.0, 8.0, 8.0), None, False),
        ((), 8.0, False),
    ],
)
def test_long_rounds_are_given_up_where_the_workers_are_a_round_ahead(
    steps_s: tuple[float, ...], num_built: float | None, are_needless: bool
) -> None:
    plan = replace(PLAN, num_workers=4, num_queued=8)
    log = built(num_built) if num_built is not None else None
    assert phase_rules.needs_no_rounds(ramp(*steps_s), log, plan) is are_needless


def test_a_script_that_still_waits_is_measured_in_whole_rounds() -> None:
    plan = replace(PLAN, num_workers=4, num_queued=8)
    waiting = [*ramp(8.0, 8.0, 8.0), replace(ramp(8.0)[0], data_wait_s=0.1)]
    assert not phase_rules.needs_no_rounds(waiting, built(12.0), plan)
