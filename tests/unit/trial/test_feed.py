"""What a script is given in the window, and what is counted of it, by a meter that never ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler

from autotune.measure.block import Phase
from autotune.trial.feed import Feed
from autotune.trial.steps import Steps
from autotune.trial.tally import Tally

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
    """A feed in a trial's window."""

    def __init__(self, dataset: Dataset[torch.Tensor]) -> None:
        self.steps = Steps()
        self.tally = Tally(
            self.steps,
            has_loader=True,
            samples_per_step=None,
            micro_batches_per_step=1,
            end_step=None,
            end_block=lambda: self.tally.begin_block(2),
        )
        self.feed = Feed(self.steps, lambda *_: self.meter, num_passes_before_training=0)
        self.meter: Any = SimpleNamespace(
            tally=self.tally,
            phase=Phase.WINDOW,
            uses_token=False,
            arrive=self.tally.arrive,
        )
        self.feed._meter = self.meter
        loader = DataLoader(dataset, batch_sampler=Uneven())
        self.feed.make_endless(loader)
        self.feed.epoch.begins(loader)
        self.iterator = iter(loader)
        self.feed.iterated(None, loader, self.iterator)  # type: ignore[arg-type]

    def step(self) -> None:
        self.feed.next_batch(self.iterator, type(self.iterator).__next__)
        self.steps.num_backwards += 1
        self.steps.num_updates += 1


def test_samples_are_those_of_the_batches_whatever_their_sizes() -> None:
    window = Window(Rows())
    taken = []
    for _ in range(2 * len(SIZES)):
        window.step()
        taken.append(window.tally.latest_num_samples)
    assert taken == [3, 1, 4, 2, 3, 1, 4, 2]
    assert window.feed.epoch.num_given == 8


def test_a_batch_that_cannot_be_read_is_left_out_of_the_samples() -> None:
    window = Window(Rows(broken=3))
    window.step()
    with pytest.raises(OSError, match="truncated"):
        window.step()
    window.step()
    assert window.tally.latest_num_samples == 4
    assert window.tally.samples_taken == 7


def test_what_a_diagnosis_gives_takes_the_place_of_real_batches_and_is_counted() -> None:
    window = Window(Rows())
    window.step()
    window.feed.phase_began(Phase.OBSERVED)
    window.feed.give(torch.zeros(7, 2))
    window.step()
    assert window.tally.latest_num_samples == 7


def test_a_phase_that_ends_within_a_block_ends_the_short_way_at_once() -> None:
    """Ranks change phase together, at a step of rank 0's choice: an epoch that was begun there is read from there."""
    window = Window(Rows())
    successor = iter(DataLoader(Rows(), batch_size=7))
    successor._autotune_sizes = None  # type: ignore[attr-defined]

    def restart() -> None:
        window.feed.phase_began(Phase.RESTART)
        window.feed.epoch.successor = successor

    window.tally.begin_block(100)
    window.tally._end_step = restart
    window.step()
    window.step()
    assert window.tally.latest_num_samples == 7
