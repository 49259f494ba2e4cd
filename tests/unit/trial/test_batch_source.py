"""What a script is given in the window, and what is counted of it, by a meter that never ends."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler

from autotune.measure.block import Phase
from autotune.trial.loader.batch_source import BatchSource
from autotune.trial.meter.counters import Counters
from autotune.trial.step.steps import Steps

SIZES = (3, 1, 4, 2)


class Rows(Dataset[torch.Tensor]):
    """One of them cannot be read."""

    def __init__(self, broken: int | None = None) -> None:
        self.broken = broken

    def __len__(self) -> int:
        return sum(SIZES)

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.broken:
            raise OSError("truncated")
        return torch.zeros(2)


class Uneven(BatchSampler):
    """Batches of these sizes in turn."""

    def __init__(self) -> None:
        super().__init__(SequentialSampler(range(sum(SIZES))), 1, False)

    def __iter__(self) -> Any:
        indices = iter(range(sum(SIZES)))
        for size in SIZES:
            yield [next(indices) for _ in range(size)]

    def __len__(self) -> int:
        return len(SIZES)


class Window:
    """A batch source in the window of a trial."""

    def __init__(self, dataset: Dataset[torch.Tensor]) -> None:
        self.steps = Steps()
        self.counters = Counters(
            self.steps,
            has_loader=True,
            samples_per_step=None,
            micro_batches_per_step=1,
            end_step=None,
            end_block=lambda: self.counters.begin_block(2),
        )
        self.batch_source = BatchSource(self.steps, lambda *_: self.meter, num_passes_before_training=0)
        self.meter: Any = SimpleNamespace(
            counters=self.counters,
            phase=Phase.WINDOW,
            uses_cached_batch=False,
            arrive=self.counters.arrive,
            begin_delivery=lambda: 0.0,
            delivered=lambda num_samples, _: self.counters.delivered(num_samples, 0.0),
            pass_begins=self.pass_begins,
            epoch_ended=lambda: None,
        )
        self.batch_source._meter = self.meter
        self.steps.thread = threading.get_ident()
        self.loader = DataLoader(dataset, batch_sampler=Uneven())
        self.batch_source.lengthen(self.loader, least_batches=1000)
        self.iterator = self.begin()

    def pass_begins(self) -> None:
        self.counters.arrive()
        self.counters.begin_pass(is_left=False, is_read_ahead=self.steps.thread != threading.get_ident())

    def begin(self) -> Any:
        record: Any = SimpleNamespace(is_iterated=False, is_rebuilt=False)
        self.batch_source.iterates(record, self.loader)
        iterator = iter(self.loader)
        self.batch_source.iterated(record, self.loader, iterator)
        return iterator

    def read(self, iterator: Any) -> None:
        self.batch_source.next_batch(iterator, type(iterator).__next__)

    def train(self) -> None:
        self.steps.num_backwards += 1
        self.steps.num_updates += 1

    def step(self) -> None:
        self.read(self.iterator)
        self.train()

    def look(self, num_batches: int) -> None:
        """Reads so many batches by another iteration, and asks for one more than there are in the last."""
        iterator = self.begin()
        for _ in range(num_batches):
            self.read(iterator)
        if num_batches == len(SIZES):
            with pytest.raises(StopIteration):
                self.read(iterator)

    @property
    def samples_used(self) -> float:
        self.counters.arrive()
        return self.counters._samples_used


def test_samples_are_those_of_the_batches_whatever_their_sizes() -> None:
    window = Window(Rows())
    taken = []
    for _ in range(2 * len(SIZES)):
        window.step()
        taken.append(window.counters.latest_num_samples)
    assert taken == [3, 1, 4, 2, 3, 1, 4, 2]
    assert window.batch_source.epoch.num_given == 8


def test_a_batch_that_cannot_be_read_is_left_out_of_the_samples() -> None:
    window = Window(Rows(broken=3))
    window.step()
    with pytest.raises(OSError, match="truncated"):
        window.step()
    window.step()
    assert window.counters.latest_num_samples == 4
    assert window.counters.samples_taken == 7


def test_what_a_diagnosis_gives_takes_the_place_of_real_batches_and_is_counted() -> None:
    window = Window(Rows())
    window.step()
    window.batch_source.phase_began(Phase.OBSERVED)
    window.batch_source.give(torch.zeros(7, 2))
    window.step()
    assert window.counters.latest_num_samples == 7


def test_a_phase_that_ends_within_a_block_ends_the_short_way_at_once() -> None:
    """Ranks change phase together, at a step of rank 0's choice: an epoch that was begun there is read from there."""
    window = Window(Rows())
    successor = iter(DataLoader(Rows(), batch_size=7))
    successor._autotune_sizes = None  # type: ignore[attr-defined]

    def restart() -> None:
        window.batch_source.phase_began(Phase.RESTART)
        window.batch_source.epoch.successor = successor

    window.counters.begin_block(100)
    window.counters._end_step = restart
    window.step()
    window.step()
    assert window.counters.latest_num_samples == 7


@pytest.mark.parametrize("num_batches", [1, len(SIZES)])
def test_what_is_only_read_while_an_iteration_waits_is_not_taken_for_trained_on(num_batches: int) -> None:
    """As an evaluation on the training data in mid-epoch, of which nothing says that it is left."""
    window = Window(Rows())
    for _ in range(2):
        window.step()
        for _ in range(2):
            window.look(num_batches)
    window.step()
    window.step()
    assert window.samples_used == sum(SIZES)
    assert window.batch_source.epoch.num_given == 4
    assert window.batch_source._counters is not None, "the short way is not taken again"


@pytest.mark.parametrize("num_before", [0, 1])
def test_a_batch_in_hand_is_counted_though_all_was_read_before_it_was_trained_on(num_before: int) -> None:
    """Though it is the first one of its iteration, too, before which nothing tells that from a look."""
    window = Window(Rows())
    window.step()
    window.iterator = window.begin()
    for _ in range(num_before):
        window.step()
    window.read(window.iterator)
    for _ in range(2):
        window.look(len(SIZES))
    window.train()
    window.step()
    assert window.samples_used == SIZES[0] + sum(SIZES[: num_before + 2])
    assert window.batch_source.epoch.num_given == num_before + 2


def test_two_iterations_that_are_trained_on_in_turns_are_both_counted() -> None:
    window = Window(Rows())
    other = window.begin()
    for _ in SIZES:
        window.read(other)
        window.step()
    assert window.samples_used == 2 * sum(SIZES)


def test_what_another_thread_reads_before_anything_is_trained_on_is_used_later() -> None:
    window = Window(Rows())
    window.step()
    window.steps.thread = 0
    window.look(len(SIZES))
    window.begin()
    window.train()
    assert window.samples_used == SIZES[0] + sum(SIZES)


def test_what_only_reads_before_anything_was_trained_on_comes_to_its_end() -> None:
    """As an evaluation before the first step of an epoch that has begun: as many iterations as the probe saw."""
    window = Window(Rows())
    window.batch_source._meter = None
    window.look(len(SIZES))


def test_the_cached_batch_is_handed_out_as_real_batches_are_and_no_real_batch_is_taken_early() -> None:
    given: list[str] = []

    class Copies:
        looks_ahead = False

        def of_cached(self, make: Any) -> Any:
            given.append("cached")
            return make()

    window = Window(Rows())
    source, copies = window.batch_source, Copies()
    source.copies = copies  # type: ignore[assignment]
    source._cached_batch = torch.ones(2)
    assert torch.equal(source._cached(), torch.ones(2)) and given == ["cached"]
    for phase in Phase:
        source.phase_began(phase)
        assert copies.looks_ahead is (phase not in (Phase.WARMUP, Phase.COMPUTE))
