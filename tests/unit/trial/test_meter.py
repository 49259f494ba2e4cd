"""The meter where it begins an epoch by itself, over a loop and a clock that are made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from autotune.measure.block import Phase
from autotune.measure.build_times import BuildTimes
from autotune.measure.window_stopping import LEAST_BLOCKS, StopReason, WindowRule
from autotune.trial.meter import page_locked, phase_rules
from autotune.trial.meter.build_log import Built
from autotune.trial.meter.host_clock import HostClock
from autotune.trial.meter.measuring_plan import Plan
from autotune.trial.meter.meter import Meter
from autotune.trial.meter.rank_sync import Agreement, Progress
from autotune.trial.step.steps import Steps
from tests.unit.measure.simulated import make_block
from tests.unit.trial import plans

PLAN = replace(plans.PLAN, rule=WindowRule(half_width_ratio=0.05), num_workers=2, num_queued=4)


class LateClock(HostClock):
    """The clock of a device that is always one mark behind the host; each mark comes `step_s` after the one before."""

    def __init__(self, step_s: float) -> None:
        self.num_waits = self.num_waits_for_latest = 0
        self._step_s, self._marked_s, self._reached_s = step_s, 0.0, 0.0

    def mark(self) -> float:  # type: ignore[override]
        self._reached_s = max(self._reached_s, self._marked_s)
        self._marked_s += self._step_s
        return self._marked_s

    def is_reached(self, mark: float) -> bool:
        return mark <= self._reached_s

    def wait(self, mark: float) -> None:
        self.num_waits += 1
        self.num_waits_for_latest += mark == self._marked_s
        self._reached_s = max(self._reached_s, mark)

    def finish(self) -> None:
        self._reached_s = self._marked_s


class Loop:
    """A training loop that takes some batches ahead of those that it trains on."""

    def __init__(
        self,
        folder: Path,
        num_ahead: int,
        plan: Plan = PLAN,
        num_page_locked: Callable[[], int | None] = lambda: None,
        num_graphs: Callable[[], int | None] = lambda: None,
        num_searches: Callable[[], int] = lambda: 0,
        clock: HostClock | None = None,
        world_size: int = 1,
        num_ready: float | None = None,
    ) -> None:
        self.steps, self.ended = Steps(), list[StopReason]()
        self.is_gate_open = False
        if clock is None:
            clock, marks = HostClock(), count()
            clock.mark = lambda: float(next(marks))  # type: ignore[method-assign]
        self.meter = Meter(
            plan,
            steps=self.steps,
            clock=clock,
            agreement=Agreement(Progress(folder / "progress"), 0, world_size),
            open_gate=self.open_gate,
            finish=self.ended.append,
            num_page_locked=num_page_locked,
            num_graphs=num_graphs,
            num_searches=num_searches,
            built=lambda: None if num_ready is None else self.built(num_ready),
        )
        self.meter.pass_begins()
        for _ in range(num_ahead):
            self.take()

    def open_gate(self) -> bool:
        self.is_gate_open = True
        return True

    def built(self, num_ready: float) -> Built:
        """The batches of workers that keep so many batches ready, from the ramp on."""
        taken = [block.num_micro_batches for block in self.meter.blocks() if block.phase in (Phase.RAMP, Phase.WINDOW)]
        times = BuildTimes(num_workers=4, prefetch_factor=2, num_finished=0, total_s=0.0, total_squared_s2=0.0)
        return Built(sum(taken) + num_ready, times)

    def take(self, num_samples: float = 8.0) -> None:
        self.meter.arrive()
        self.meter.counters.delivered(num_samples, 0.0)

    def step(self, num_micro_batches: int = 1, num_samples: float = 8.0) -> None:
        for _ in range(num_micro_batches):
            self.take(num_samples)
            self.steps.num_backwards += 1
        self.steps.stepped(None)

    def run(self, **of_step: float) -> None:
        """Steps up to the end of the trial."""
        while not self.ended and self.steps.num_updates < 1000:
            self.step(**of_step)  # type: ignore[arg-type]
            self.meter.arrive()


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


def test_a_block_in_which_the_compiler_built_a_graph_is_dropped_up_to_three_times(tmp_path: Path) -> None:
    graphs = [1]
    loop = Loop(tmp_path, 0, num_graphs=lambda: graphs[0])
    loop.step()
    loop.meter.arrive()
    for phase_after in (Phase.RAMP, Phase.RAMP, Phase.RAMP, Phase.WINDOW):
        loop.meter._enter(Phase.RAMP)
        loop.meter._enter(Phase.WINDOW, num_micro_batches=2)
        for _ in range(3):
            loop.step()
        graphs[0] += 1
        loop.step()
        loop.meter.arrive()
        assert loop.meter.phase is phase_after
    window = [block for block in loop.meter.blocks() if block.phase is Phase.WINDOW]
    assert [block.num_steps for block in window] == [2, 2, 2, 2, 2]


def test_a_block_in_which_cudnn_searched_kernels_is_dropped_and_the_window_goes_on(tmp_path: Path) -> None:
    """YOLOX resizes its images every tenth step; on an H200 the first step of a size took 10 s, and others 0.14 s."""
    searches = [1]
    loop = Loop(tmp_path, 0, replace(PLAN, num_queued=0), num_searches=lambda: searches[0])
    loop.step()
    loop.meter.arrive()
    loop.meter._enter(Phase.WINDOW, num_micro_batches=2)
    for is_new in (False, True, False, False, True, False, False):
        loop.step(2)
        searches[0] += is_new
        loop.step(2, num_samples=16.0)
    loop.meter.arrive()
    window = [block for block in loop.meter.blocks() if block.phase is Phase.WINDOW]
    assert loop.meter.phase is Phase.WINDOW and loop.meter.left_out_s > 0
    assert [block.num_samples for block in window] == [16, 32, 32, 16, 32, 16, 32, 32, 16, 32, 16, 32]


@pytest.mark.parametrize(("waits_s", "kept"), [(0.0, [3]), (1000.0, [2, 3])])
def test_batches_that_workers_built_during_a_search_are_left_out_up_to_the_first_wait(
    tmp_path: Path, waits_s: float, kept: list[int]
) -> None:
    """Workers fill their queues in a search of 10 s: a loader of 27 images per second would look like one of 55."""
    searches = [0]
    loop = Loop(tmp_path, 0, replace(PLAN, num_queued=4), num_searches=lambda: searches[0])
    loop.step()
    loop.meter.arrive()
    loop.meter._enter(Phase.WINDOW, num_micro_batches=2)
    for index in range(4):
        loop.step(2, num_samples=float(index))
        searches[0] = 1
        loop.meter.counters.wait_s += waits_s
    loop.meter.arrive()
    window = [block for block in loop.meter.blocks() if block.phase is Phase.WINDOW]
    assert [block.num_samples / 2 for block in window] == kept


def test_a_window_ends_with_the_fewest_blocks_once_it_has_left_out_four_times_its_limit(tmp_path: Path) -> None:
    loop = Loop(tmp_path, 0)
    loop.step()
    loop.meter.arrive()
    loop.meter._enter(Phase.WINDOW)
    loop.meter.left_out_s = 4.0 * PLAN.rule.max_window_s + 1.0
    for num_blocks in range(1, 5):
        assert loop.ended == [], num_blocks
        loop.step(num_samples=8.0 * num_blocks)
        loop.meter.arrive()
    assert loop.ended == [StopReason.TIME_LIMIT]


@pytest.mark.parametrize("what", ["num_graphs", "num_searches"])
@pytest.mark.parametrize(("plan", "world_size"), [(PLAN, 2), (replace(PLAN, script_steps=100), 1)])
def test_what_one_of_several_ranks_or_a_short_script_builds_or_searches_stays_in_the_window(
    tmp_path: Path, plan: Plan, world_size: int, what: str
) -> None:
    asked = count()
    options: dict[str, Any] = {what: lambda: next(asked)}
    loop = Loop(tmp_path, 0, plan, world_size=world_size, **options)
    loop.step()
    loop.meter.arrive()
    loop.meter._enter(Phase.WINDOW)
    for _ in range(3):
        loop.step()
    loop.meter.arrive()
    assert loop.meter.phase is Phase.WINDOW
    assert len([block for block in loop.meter.blocks() if block.phase is Phase.WINDOW]) == 3


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


HURRIED = replace(PLAN, script_steps=4)
"""Of so few steps the phases before the window take no more than they must, so that nothing hangs on the real clock."""


@pytest.mark.parametrize(("num_workers", "num_micro_batches", "cycle"), [(2, 3, 6), (4, 2, 4), (0, 2, 2), (3, 1, 3)])
def test_blocks_of_the_window_are_whole_cycles_of_workers_and_whole_steps(
    tmp_path: Path, num_workers: int, num_micro_batches: int, cycle: int
) -> None:
    plan = replace(HURRIED, num_workers=num_workers, micro_batches_per_step=num_micro_batches)
    loop = Loop(tmp_path, 0, plan)
    loop.run(num_micro_batches=num_micro_batches)
    window = [block for block in loop.meter.blocks() if block.phase is Phase.WINDOW]
    assert {(block.num_micro_batches, block.num_steps) for block in window} == {(cycle, cycle // num_micro_batches)}


@pytest.mark.parametrize(("num_ready", "num_steps"), [(8.0, 1), (0.0, 4), (None, 4)])
def test_long_steps_fed_far_ahead_are_blocks_of_their_own(
    tmp_path: Path, num_ready: float | None, num_steps: int
) -> None:
    """Windows of accelerate's example on two cores had four blocks of four steps of 8 to 30 s."""
    plan = replace(HURRIED, num_workers=4, num_queued=8)
    loop = Loop(tmp_path, 0, plan, num_ready=num_ready)
    loop.run()
    window = [block for block in loop.meter.blocks() if block.phase is Phase.WINDOW]
    assert {block.num_steps for block in window} == {num_steps}


def test_a_window_of_alike_blocks_converges_and_is_said_to_have(tmp_path: Path) -> None:
    loop = Loop(tmp_path, 0, HURRIED)
    loop.run()
    assert loop.ended == [StopReason.CONVERGED]


class Epochs:
    """Ends and begins epochs, and notes the batches asked for."""

    def __init__(self) -> None:
        self.num_needed: list[int] = []

    def end_epoch(self, num_needed: int) -> float | None:
        self.num_needed.append(num_needed)
        return 0.0

    def begin_epoch(self) -> None:
        pass


@pytest.mark.parametrize(
    ("epoch", "world_size", "num_watched"), [(2, 1, [2]), (3, 1, [3]), (100, 1, [4]), (2, 2, [4]), (None, 1, [])]
)
def test_after_a_restart_an_epoch_is_watched_at_most_and_by_several_ranks_the_same_number(
    tmp_path: Path, epoch: int | None, world_size: int, num_watched: list[int]
) -> None:
    plan = replace(HURRIED, epoch_micro_batches=epoch, first_batch_s=1.0)
    loop, epochs = Loop(tmp_path, 0, plan, world_size=world_size), Epochs()
    loop.meter._epochs = epochs
    loop.run()
    restart = [block for block in loop.meter.blocks() if block.phase is Phase.RESTART]
    assert epochs.num_needed == num_watched
    assert sum(block.num_micro_batches for block in restart) == sum(num_watched)


def test_a_restart_too_long_for_the_window_s_limit_is_not_made(tmp_path: Path) -> None:
    """Two batches begun by two workers, and two to watch, take 2 s beside the first batch."""
    epochs = Epochs()
    for name, first_batch_s in (("short", 1.0), ("long", HURRIED.rule.max_window_s - 1.5)):
        (tmp_path / name).mkdir()
        loop = Loop(tmp_path / name, 0, replace(HURRIED, epoch_micro_batches=2, first_batch_s=first_batch_s))
        loop.meter._epochs = epochs
        loop.run()
    assert epochs.num_needed == [2]


def test_a_window_that_never_settles_ends_at_its_limit_and_is_not_said_to_have_converged(tmp_path: Path) -> None:
    loop = Loop(tmp_path, 0, HURRIED)
    while not loop.ended and loop.steps.num_updates < 1000:
        loop.step(num_samples=8.0 if loop.steps.num_updates // 7 % 3 else 80.0)
        loop.meter.arrive()
    window = [block for block in loop.meter.blocks() if block.phase is Phase.WINDOW]
    assert loop.ended == [StopReason.TIME_LIMIT]
    assert sum(block.duration_s for block in window) == HURRIED.rule.max_window_s


def test_every_block_is_kept_from_the_warm_up_on_in_the_order_of_time(tmp_path: Path) -> None:
    loop = Loop(tmp_path, 0, HURRIED)
    loop.run()
    blocks = loop.meter.blocks()
    phases = [phase for phase in Phase if any(block.phase is phase for block in blocks)]
    assert phases == [Phase.WARMUP, Phase.COMPUTE, Phase.RAMP, Phase.WINDOW]
    assert [block.phase for block in blocks] == sorted((block.phase for block in blocks), key=phases.index)
    # All steps are in some block but the first, with which the meter begins, and any in a block that did not end.
    assert loop.steps.num_updates - sum(block.num_steps for block in blocks) <= 6


def test_the_window_begins_when_page_locked_memory_grows_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool grows by a block in every other step, the 16th and last in step 33; a step takes a second."""
    monkeypatch.setattr(page_locked, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(phase_rules, "MAX_FILL_S", 1000.0)
    asked = count()
    plan = replace(PLAN, num_workers=4, num_queued=16)
    loop = Loop(tmp_path, 0, plan, lambda: min(16, next(asked) // 2))
    loop.step()
    loop.meter.arrive()
    loop.meter._enter(Phase.RAMP)
    asked = count()
    while loop.meter.phase is Phase.RAMP and loop.steps.num_updates < 1000:
        loop.step()
        loop.meter.arrive()
    assert len([block for block in loop.meter.blocks() if block.phase is Phase.RAMP]) == 33 + 4


BY_STEPS = replace(plans.PLAN, has_loader=False, samples_per_step=8.0, rule=WindowRule(half_width_ratio=0.05))
"""A script without a loader of torch, as nanoGPT."""


def blocks_by_phase(loop: Loop) -> dict[Phase, int]:
    """Number of blocks in each phase of a whole measurement."""
    while not loop.ended and loop.steps.num_updates < 1000:
        loop.steps.num_backwards += 1
        loop.steps.stepped(None)
        loop.meter.arrive()
    blocks = loop.meter.blocks()
    return {phase: sum(block.phase is phase for block in blocks) for phase in {block.phase for block in blocks}}


def test_long_steps_are_waited_for_where_a_further_step_would_decide_nothing_else(tmp_path: Path) -> None:
    """A step of nanoGPT took 1.4 s; each phase had one that only told that the step before was enough."""
    clock = LateClock(1.4)
    assert blocks_by_phase(Loop(tmp_path, 0, BY_STEPS, clock=clock)) == {
        Phase.WARMUP: phase_rules.MIN_WARMUP_STEPS,
        Phase.RAMP: 1,
        Phase.WINDOW: LEAST_BLOCKS,
    }
    assert clock.num_waits == 3


def test_nothing_waits_for_short_steps(tmp_path: Path) -> None:
    clock = LateClock(0.4)
    assert Phase.WINDOW in blocks_by_phase(Loop(tmp_path, 0, BY_STEPS, clock=clock))
    assert clock.num_waits == 0


@pytest.mark.parametrize(("world_size", "marks_steps"), [(1, False), (2, True)])
def test_the_clock_is_marked_within_a_block_only_where_ranks_keep_up_with_each_other(
    tmp_path: Path, world_size: int, marks_steps: bool
) -> None:
    """A mark on a GPU takes 0.05 ms of the host or more."""
    clock, num_marks = HostClock(), count()
    clock.mark = lambda: float(next(num_marks))  # type: ignore[method-assign]
    loop = Loop(tmp_path, 0, replace(PLAN, num_workers=4), clock=clock, world_size=world_size)
    while loop.meter.phase is not Phase.WINDOW:
        loop.step()
        loop.meter.arrive()
    before, num_steps = next(num_marks), 40
    for _ in range(num_steps):
        loop.step()
        loop.meter.arrive()
    assert (next(num_marks) - before - 1 >= num_steps) is marks_steps


def test_ranks_never_wait_for_their_latest_step(tmp_path: Path) -> None:
    """They agree on the step of a change beforehand; a wait of rank 0 alone would hold up the others."""
    clock = LateClock(1.4)
    assert Phase.WINDOW in blocks_by_phase(Loop(tmp_path, 0, BY_STEPS, clock=clock, world_size=2))
    assert clock.num_waits_for_latest == 0


@pytest.mark.parametrize(
    ("known_s", "num_unfinished", "is_worth"),
    [
        ((1.4, 1.4, 1.41), 1, True),
        ((1.4, 1.4), 1, False),
        ((1.4, 1.5, 1.4), 1, False),  # Another look would follow, and the wait would be in vain.
        ((1.4, 1.9, 1.4, 1.9, 1.4), 1, True),  # The time is up.
    ],
)
def test_a_window_waits_for_the_block_that_probably_ends_it(
    known_s: tuple[float, ...], num_unfinished: int, is_worth: bool
) -> None:
    known = [make_block(seconds) for seconds in known_s]
    assert phase_rules.is_worth_a_wait(Phase.WINDOW, known, num_unfinished, known_s[-1], BY_STEPS) is is_worth
