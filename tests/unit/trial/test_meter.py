"""The meter where it begins an epoch by itself, over a loop and a clock that are made up."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from autotune.measure.block import Phase
from autotune.measure.stopping import StopReason, WindowRule
from autotune.trial.clock import HostClock
from autotune.trial.measuring_plan import Plan
from autotune.trial.meter import Meter
from autotune.trial.ranks import Agreement, Progress
from autotune.trial.steps import Steps

PLAN = Plan(
    rule=WindowRule(half_width_ratio=0.05),
    has_loader=True,
    num_workers=2,
    num_queued=4,
    micro_batches_per_step=1,
    incumbent_samples_per_second=None,
    samples_per_step=None,
)


class Loop:
    """A training loop that takes some batches ahead of those that it trains on."""

    def __init__(self, folder: Path, num_ahead: int, plan: Plan = PLAN) -> None:
        self.steps, self.ended = Steps(), list[StopReason]()
        self.is_gate_open = False
        clock, marks = HostClock(), count()
        clock.mark = lambda: float(next(marks))  # type: ignore[method-assign]
        self.meter = Meter(
            plan,
            steps=self.steps,
            clock=clock,
            agreement=Agreement(Progress(folder / "progress"), 0, 1),
            open_gate=self.open_gate,
            finish=self.ended.append,
        )
        self.meter.pass_begins()
        for _ in range(num_ahead):
            self.take()

    def open_gate(self) -> bool:
        self.is_gate_open = True
        return True

    def take(self) -> None:
        self.meter.arrive()
        self.meter.tally.delivered(8.0, 0.0)

    def step(self) -> None:
        self.take()
        self.steps.num_backwards += 1
        self.steps.stepped(None)


@pytest.mark.parametrize("num_ahead", [0, 2])
def test_in_an_epoch_begun_from_outside_the_script_still_has_what_it_took_ahead(tmp_path: Path, num_ahead: int) -> None:
    loop = Loop(tmp_path, num_ahead)
    for _ in range(3):
        loop.step()
    loop.meter.arrive()
    loop.meter._enter(Phase.RESTART)
    loop.meter.pass_begins()
    loop.step()
    loop.meter.arrive()
    (first,) = [block for block in loop.meter.blocks() if block.phase is Phase.RESTART]
    assert (first.num_steps, first.num_micro_batches, first.num_samples) == (1, 1, 8.0)


def test_the_block_that_holds_the_first_end_of_an_epoch_is_dropped_and_later_ends_stay_in(tmp_path: Path) -> None:
    loop = Loop(tmp_path, 0)
    loop.step()
    loop.meter.arrive()
    for phase_after in (Phase.RAMP, Phase.WINDOW):
        loop.meter._enter(Phase.WINDOW, num_micro_batches=2)
        for _ in range(3):
            loop.step()
        loop.meter.arrive()
        loop.meter.epoch_ended()
        assert loop.meter.phase is phase_after
    loop.step()
    loop.meter.arrive()
    window = [block for block in loop.meter.blocks() if block.phase is Phase.WINDOW]
    assert [block.num_steps for block in window] == [2, 2, 2]


@pytest.mark.parametrize("has_lost", [True, False])
def test_settings_whose_compute_alone_is_too_slow_end_before_their_loader_builds_anything(
    tmp_path: Path, has_lost: bool
) -> None:
    """A step of 8 samples takes a second of the clock; the loader can only make it slower."""
    to_beat = 8.0 / PLAN.rule.race_margin * (1.01 if has_lost else 0.99)
    # Of so few steps neither phase may take more than it must, so that nothing hangs on the real clock.
    loop = Loop(tmp_path, 0, replace(PLAN, incumbent_samples_per_second=to_beat, script_steps=4))
    while not loop.ended and not loop.is_gate_open and loop.steps.num_updates < 20:
        loop.step()
        loop.meter.arrive()
    assert loop.meter.compute_samples_per_second == pytest.approx(8.0)
    assert loop.is_gate_open is not has_lost
    assert loop.ended == ([StopReason.RACED_OUT] if has_lost else [])
