"""Loaders whose iterator wraps torch's, as those of PyTorch Geometric do: batches are taken from torch's within."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch.utils.data import DataLoader

from autotune.trial.loader.loaders import Loaders
from autotune.trial.loader.running_epoch import RunningEpoch
from autotune.trial.probe.loader_detector import _is_kept_by_cycle
from autotune.trial.torch.patching import recorded, unwrap


class Squares:
    """Squares each sample of torch's iterator, and notes its own end, with which workers would end."""

    def __init__(self, iterator: Any, ended: list[None]) -> None:
        self.iterator, self.ended = iterator, ended

    def __iter__(self) -> Squares:
        return self

    def __next__(self) -> list[int]:
        return [number * number for number in next(self.iterator)]

    def __del__(self) -> None:
        self.ended.append(None)


class SquaringLoader(DataLoader[Any]):
    ended: list[None]

    def _get_iterator(self) -> Any:
        return Squares(super()._get_iterator(), self.ended)


class Watched:
    """The loaders of this process, with a watch over the batches of every iteration."""

    def __init__(self) -> None:
        self.loaders, self.epoch = Loaders(), RunningEpoch()
        self.taken: list[Any] = []
        self.latest: Any = None
        self.loaders.taker = lambda _: self._take
        self.loaders.iterated = self._iterated
        self.loaders.install()
        self.loader = SquaringLoader(range(2, 8), batch_size=2, collate_fn=list)
        self.loader.ended = []

    def _iterated(self, _: object, loader: Any, iterator: Any) -> None:
        self.epoch.begins(loader)
        self.epoch.began(loader, iterator, is_held_back=False)

    def _take(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        self.epoch.taken_by(original)
        self.latest = iterator
        batch = original(iterator)
        self.taken.append(batch)
        return batch


@pytest.fixture
def watched() -> Iterator[Watched]:
    with recorded() as made:
        yield Watched()
    unwrap(made)
    gc.collect()


def test_batches_are_seen_as_torch_builds_them_and_given_as_the_library_makes_them(watched: Watched) -> None:
    assert list(watched.loader) == [[4, 9], [16, 25], [36, 49]]
    assert watched.taken == [[2, 3], [4, 5], [6, 7]]


def test_an_epoch_begun_from_outside_gives_torchs_batches_as_long_as_it_lasts(watched: Watched) -> None:
    held = iter(watched.loader)
    next(held)
    watched.epoch.begin_next()
    gc.collect()
    iterator, take = watched.epoch.source
    assert take(iterator) == [2, 3]
    assert not watched.loader.ended


def test_an_iteration_goes_on_under_other_settings(watched: Watched) -> None:
    held = iter(watched.loader)
    assert next(held) == [4, 9]
    for num_dropped in range(2):
        assert watched.loaders.may_switch
        watched.loaders.retire()
        assert [next(held), next(held)] == [[4, 9], [16, 25]]
        gc.collect()
        assert len(watched.loader.ended) == num_dropped
    assert list(held) == [[36, 49]]


def test_the_iteration_of_persistent_workers_is_forgotten_with_the_settings(watched: Watched) -> None:
    held = iter(watched.loader)
    next(held)
    watched.loader._iterator = held  # type: ignore[assignment]
    watched.loaders.retire()
    assert watched.loader._iterator is None


def test_a_cycle_that_keeps_the_batches_is_seen(watched: Watched) -> None:
    kept = itertools.cycle(watched.loader)
    next(kept)
    assert _is_kept_by_cycle(watched.latest)
    held = iter(watched.loader)
    next(held)
    assert not _is_kept_by_cycle(watched.latest)


class EagerLoader(DataLoader[Any]):
    """Builds no iterator of torch's at all."""

    def _get_iterator(self) -> Any:
        return iter([[0], [1]])


def test_an_iterator_without_torchs_is_left_alone(watched: Watched) -> None:
    assert list(EagerLoader(range(2))) == [[0], [1]]
    assert not watched.taken
