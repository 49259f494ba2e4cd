"""How far a script goes in its epochs, over loaders without workers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from torch.utils.data import BatchSampler, DataLoader, Sampler

from autotune.trial.loader.running_epoch import RunningEpoch
from autotune.trial.torch.batch_structure import lengthen
from tests.unit.trial.test_batch_structure import Drawn
from tests.unit.trial.test_endless_samplers import Endless


class Passes:
    """A script that iterates over a loader of ten batches again and again."""

    def __init__(self, least_batches: int = 100) -> None:
        self.epoch = RunningEpoch()
        self.num_taken = 0
        self.loader = DataLoader(list(range(20)), batch_size=2)
        lengthen(self.loader, least_batches=least_batches, may_repeat=lambda num: True, num_backwards=lambda: 1)

    def run(self, lengths: Sequence[int]) -> None:
        """Takes so many batches in each pass; the last one goes on."""
        for number, length in enumerate(lengths):
            if number:
                self.epoch.left()
            self.epoch.begins(self.loader)
            self.iterator = iter(self.loader)
            self.epoch.began(self.loader, self.iterator, is_held_back=False)
            self.epoch.taken_by(self._take)
            for _ in range(length):
                self._take(self.iterator)
                self.epoch.num_given += 1

    def _take(self, iterator: object) -> None:
        next(iterator)  # type: ignore[call-overload]
        self.num_taken += 1


@pytest.mark.parametrize(
    ("lengths", "num_batches"),
    [
        ((8, 1), 8),
        ((8, 8, 1), 8),
        ((8, 9, 1), 10),  # by no number of batches
        ((10, 3), 10),
        ((13, 3), 10),  # past the end of an epoch that does not end
        ((10, 1, 10, 1, 2), 10),  # a look at a batch before each
        ((1, 1, 8), 10),
    ],
)
def test_epochs_that_a_script_leaves_are_as_long_as_it_goes_in_them(lengths: Sequence[int], num_batches: int) -> None:
    passes = Passes()
    passes.run(lengths)
    assert passes.epoch.num_batches == num_batches


def test_an_epoch_that_a_script_leaves_is_left_with_what_its_workers_have_ready() -> None:
    passes = Passes()
    passes.run((8, 4))
    assert passes.epoch.end(5) is not None
    assert passes.num_taken == 12


def test_an_epoch_that_a_script_sees_through_is_taken_to_its_end() -> None:
    passes = Passes()
    passes.run((10, 4))
    assert passes.epoch.end(5) is not None
    assert next(passes.iterator, None) is None


def test_an_epoch_is_not_begun_anew_where_the_script_would_see_one_longer_than_its_loader() -> None:
    passes = Passes(least_batches=20)
    passes.run((10, 16))
    assert passes.epoch.end(5) is None
    assert passes.epoch.end(4) is not None
    passes.epoch.begin_next()
    assert (passes.epoch.num_given, passes.epoch.num_until_end) == (16, len(passes.loader))


@pytest.mark.parametrize("is_in_order", [True, False])
def test_sizes_of_batches_are_noted_where_they_come_in_order_and_nowhere_else(is_in_order: bool) -> None:
    passes = Passes()
    passes.loader.in_order = is_in_order
    passes.run((9,))
    sizes = passes.iterator._autotune_sizes  # type: ignore[attr-defined]
    assert (sizes is not None) == is_in_order
    assert len(passes.loader.batch_sampler.latest_sizes) == (9 if is_in_order else 0)  # type: ignore[union-attr]


def over(sampler: Sampler[int]) -> Passes:
    """Passes over ten batches of this sampler, which no trial lengthens."""
    passes = Passes()
    passes.loader = DataLoader(list(range(20)), batch_sampler=BatchSampler(sampler, 2, drop_last=False))
    return passes


@pytest.mark.parametrize("is_endless", [False, True])
def test_an_iteration_over_an_endless_sampler_does_not_end_from_outside(is_endless: bool) -> None:
    passes = over(Endless(20, is_endless=is_endless))
    passes.run((4,))
    assert passes.epoch.num_batches == (None if is_endless else 10)
    passes.epoch.began(passes.loader, passes.iterator, is_held_back=True)  # four cached batches came before
    assert not passes.epoch.is_at_end()
    passes.epoch.num_given = 11
    assert passes.epoch.is_at_end() is not is_endless
    assert passes.epoch.is_past_end is not is_endless
    lengthen(passes.loader, least_batches=100, may_repeat=lambda num: True, num_backwards=lambda: 1)
    passes.run((4,))
    assert (passes.epoch.end(5) is None) is is_endless


@pytest.mark.parametrize("has_batches", [True, False])
def test_an_endless_sampler_is_known_without_its_loader_and_after_a_switch(has_batches: bool) -> None:
    passes = over(Endless(20))
    if not has_batches:
        passes.loader = DataLoader(list(range(20)), batch_size=None, sampler=Endless(20))
    passes.run((4,))
    passes.epoch.began(passes.loader, passes.iterator, is_held_back=True)
    passes.epoch.num_given = 20
    del passes.loader
    assert not passes.epoch.is_at_end()
    later = over(Endless(20))
    later.run((2,))
    later.epoch.goes_on(passes.epoch)
    assert later.epoch.num_batches is None and not later.epoch.is_past_end


def test_a_script_that_begins_anew_over_an_endless_sampler_has_epochs() -> None:
    passes = over(Endless(20))
    passes.run((10, 4))
    assert passes.epoch.num_batches == 10
    rebuilt = over(Endless(20))
    rebuilt.run((4,))
    rebuilt.epoch.began(rebuilt.loader, rebuilt.iterator, is_held_back=True, is_rebuilt=True)
    assert rebuilt.epoch.num_batches == 10
    rebuilt.epoch.num_given = 10
    assert not rebuilt.epoch.is_at_end()


def test_a_length_of_no_batch_is_not_known_yet() -> None:
    passes = Passes()
    drawn = Drawn(10)
    passes.loader = DataLoader(list(range(20)), batch_sampler=drawn)
    passes.run((3,))
    assert drawn.num_drawn == 10 and passes.epoch.num_batches is None and not passes.epoch.is_past_end
    passes.run((10, 3))
    assert passes.epoch.num_batches == 10
