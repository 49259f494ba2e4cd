"""Batch samplers that give more batches than their length says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, Sampler

from autotune.trial.loader import endless_samplers
from autotune.trial.loader.endless_samplers import is_endless


class Endless(Sampler[int]):
    """All samples in a random order, again and again."""

    def __init__(self, size: int, *, is_endless: bool = True) -> None:
        self.size = size
        self.is_endless = is_endless

    def __iter__(self) -> Iterator[int]:
        while True:
            random.random(), numpy.random.rand()
            yield from torch.randperm(self.size).tolist()
            if not self.is_endless:
                return

    def __len__(self) -> int:
        return self.size


class Understated(BatchSampler):
    """The last small batch is no part of the length."""

    def __len__(self) -> int:
        return super().__len__() - 1


class Stored(Endless):
    """Goes on where the last iteration was, as mmengine's sampler."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.indices = super().__iter__()

    def __iter__(self) -> Iterator[int]:
        yield from self.indices


class Outer:
    """As a batch sampler that shares its batches among processes."""

    def __init__(self, batch_sampler: BatchSampler) -> None:
        self.batch_sampler = batch_sampler

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batch_sampler)

    def __len__(self) -> int:
        return len(self.batch_sampler)


class Failing(Endless):
    def __iter__(self) -> Iterator[int]:
        raise RuntimeError("not before the first epoch")


def state() -> tuple[Any, ...]:
    kind, keys, *rest = numpy.random.get_state()
    return torch.get_rng_state().tolist(), random.getstate(), keys.tolist(), kind, *rest


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (BatchSampler(Endless(20), 4, drop_last=False), True),
        (Endless(20), True),
        (BatchSampler(Endless(20, is_endless=False), 4, drop_last=False), False),
        (BatchSampler(Failing(20), 4, drop_last=False), False),
        (BatchSampler(Endless(1), 4, drop_last=False), True),
        (BatchSampler(Endless(0), 4, drop_last=False), False),
        (Understated(Endless(5, is_endless=False), 4, drop_last=False), False),
        (Outer(BatchSampler(Endless(20), 4, drop_last=False)), True),
        (Outer(BatchSampler(RandomSampler(range(20)), 4, drop_last=False)), False),
        (iter([[1, 2]]), False),
        (None, False),
    ],
    ids=[
        "batches",
        "samples",
        "ends",
        "fails",
        "one batch",
        "no batch",
        "one more",
        "shared",
        "shared, ends",
        "no length",
        "none",
    ],
)
def test_a_sampler_that_gives_more_than_its_length_is_endless_and_counting_leaves_no_trace(
    sampler: Any, expected: bool
) -> None:
    before = state()
    assert is_endless(sampler) is expected
    assert state() == before


def test_a_sampler_of_torchs_own_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RandomSampler, "__iter__", lambda self: pytest.fail("counted"))
    assert not is_endless(BatchSampler(RandomSampler(range(20)), 4, drop_last=False))


def test_a_stored_iteration_is_taken_for_endless_and_goes_on_as_before() -> None:
    sampler = BatchSampler(Stored(20), 4, drop_last=False)
    batches = iter(sampler)
    first = next(batches)
    assert is_endless(sampler)
    assert len(next(batches)) == len(first) == 4


def test_a_sampler_that_takes_too_long_to_count_counts_as_one_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endless_samplers, "LONGEST_COUNT_S", -1.0)
    assert not is_endless(BatchSampler(Endless(20), 4, drop_last=False))
