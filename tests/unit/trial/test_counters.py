"""Totals of what a script took and used, and the blocks that are differences of them."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.trial.meter.block_recorder import Count
from autotune.trial.meter.counters import Counters, declared_samples
from autotune.trial.step.steps import Steps


class Loop:
    """A training loop as the counters see it."""

    def __init__(self, **values: Any) -> None:
        self.steps = Steps()
        self.num_steps_ended = 0
        self.blocks: list[Count] = []
        options = {"has_loader": True, "samples_per_step": None, "micro_batches_per_step": 1, **values}
        self.counters = Counters(self.steps, end_step=self._end_step, end_block=self._end_block, **options)

    def _end_step(self) -> None:
        self.num_steps_ended += 1

    def _end_block(self) -> None:
        self.blocks.append(Count())
        self.counters.fill(self.blocks[-1])

    def take(self, num_samples: float = 8.0, wait_s: float = 0.25) -> None:
        self.counters.arrive()
        self.counters.num_taken += 1
        self.counters.samples_taken += num_samples
        self.counters.latest_num_samples = num_samples
        self.counters.wait_s += wait_s

    def train(self, *, is_last: bool = True, is_skipped: bool = False) -> None:
        self.steps.num_backwards += 1
        if is_skipped:
            self.steps.skipped()
        elif is_last:
            self.steps.stepped(None)

    def micro_step(self, **how: Any) -> None:
        self.take()
        self.train(**how)


def test_a_block_holds_what_was_used_since_the_one_before() -> None:
    loop = Loop()
    loop.counters.begin_block(2)
    for _ in range(4):
        loop.micro_step()
    loop.counters.arrive()
    assert [(b.num_steps, b.num_micro_batches, b.num_samples, b.wait_s) for b in loop.blocks] == [(2, 2, 16.0, 0.5)] * 2
    assert loop.num_steps_ended == 2


def test_a_block_ends_with_a_step_and_never_between_its_micro_batches() -> None:
    loop = Loop()
    loop.counters.begin_block(1)
    for number in range(6):
        loop.micro_step(is_last=number % 3 == 2)
    loop.counters.arrive()
    assert [(block.num_steps, block.num_micro_batches) for block in loop.blocks] == [(1, 3), (1, 3)]


def test_batches_that_were_only_read_do_not_count() -> None:
    loop = Loop()
    loop.micro_step()
    loop.take()
    loop.counters.begin_pass(is_left=False)
    loop.micro_step()
    loop.counters.arrive()
    assert sum(block.num_micro_batches for block in loop.blocks) == 2
    assert sum(block.num_samples for block in loop.blocks) == 16.0


def test_batches_that_a_thread_has_read_ahead_count_beyond_the_end_of_their_pass() -> None:
    loop = Loop()
    loop.micro_step()
    for _ in range(3):  # while the queue fills, nothing is trained
        loop.take()
    loop.counters.begin_pass(is_left=False, is_read_ahead=True)
    for _ in range(3):
        loop.train()
        loop.take()
    for _ in range(3):
        loop.train()
    loop.counters.arrive()
    assert sum(block.num_steps for block in loop.blocks) == 7
    assert sum(block.num_micro_batches for block in loop.blocks) == 7
    assert sum(block.num_samples for block in loop.blocks) == 56.0


@pytest.mark.parametrize(("is_left", "num_counted"), [(True, 3), (False, 4)])
def test_a_batch_taken_ahead_does_not_count_in_a_pass_that_is_left(is_left: bool, num_counted: int) -> None:
    loop = Loop()
    loop.counters.begin_block(10)
    loop.counters.begin_pass(is_left=True)
    loop.take()
    for _ in range(3):
        loop.micro_step()
    loop.counters.arrive()
    loop.counters.begin_pass(is_left=is_left)
    loop.counters.fill(block := Count())
    assert (block.num_steps, block.num_micro_batches, block.num_samples) == (3, num_counted, 8.0 * num_counted)


def test_batches_that_are_put_together_count_with_the_backward_pass_that_uses_them() -> None:
    loop = Loop()
    for _ in range(2):
        loop.take()
        loop.micro_step()
    loop.counters.arrive()
    assert [(block.num_steps, block.num_micro_batches, block.num_samples) for block in loop.blocks] == [
        (1, 2, 16.0)
    ] * 2


def test_skipped_steps_are_counted_with_their_block() -> None:
    loop = Loop()
    loop.counters.begin_block(2)
    for is_skipped in (True, False, False, False):
        loop.micro_step(is_skipped=is_skipped)
    loop.counters.arrive()
    assert [(block.num_steps, block.num_skipped_steps) for block in loop.blocks] == [(2, 1), (2, 0)]


@pytest.mark.parametrize(("of_all_ranks", "of_step"), [(None, 1.0), (24.0, 24.0)])
def test_the_samples_of_a_step_without_countable_batches_are_of_all_ranks_together(
    of_all_ranks: float | None, of_step: float
) -> None:
    for world_size in (1, 2, 8):
        for has_loader in {False, of_all_ranks is not None}:
            share = declared_samples(of_all_ranks, counts_batches=has_loader, world_size=world_size)
            loop = Loop(has_loader=has_loader, samples_per_step=share)
            loop.micro_step()
            loop.counters.arrive()
            assert world_size * loop.blocks[0].num_samples == of_step


def test_countable_batches_are_counted_unless_the_user_gives_the_samples_of_a_step() -> None:
    assert declared_samples(None, counts_batches=True, world_size=2) is None


@pytest.mark.parametrize("samples_per_step", [1.0, 12.0])
def test_without_a_loader_steps_are_micro_steps(samples_per_step: float) -> None:
    loop = Loop(has_loader=False, samples_per_step=samples_per_step)
    loop.counters.begin_block(3)
    for _ in range(6):
        loop.train()
        loop.counters.arrive()
    assert [(b.num_micro_batches, b.num_samples) for b in loop.blocks] == [(3, 3 * samples_per_step)] * 2


def test_what_a_phase_dropped_is_not_in_the_next_ones_first_block() -> None:
    loop = Loop()
    loop.counters.begin_block(10)
    for _ in range(3):
        loop.micro_step()
    loop.counters.arrive()
    loop.counters.begin_block(1)
    loop.micro_step()
    loop.counters.arrive()
    assert [(block.num_steps, block.num_samples, block.wait_s) for block in loop.blocks] == [(1, 8.0, 0.25)]
