"""Batch samplers that give more batches than their length says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, Sampler

from autotune.trial.loader.endless_samplers import MOST_COUNTED, is_endless


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
        (BatchSampler(RandomSampler(range(20)), 4, drop_last=False), False),
        (BatchSampler(Endless(0), 4, drop_last=False), False),
        (BatchSampler(Endless(2 * MOST_COUNTED), 1, drop_last=False), False),
        (iter([[1, 2]]), False),
        (None, False),
    ],
    ids=["batches", "samples", "ends", "fails", "of torch", "no batch", "too long", "no length", "none"],
)
def test_a_sampler_that_gives_more_than_its_length_is_endless_and_counting_leaves_no_trace(
    sampler: Any, expected: bool
) -> None:
    before = state()
    assert is_endless(sampler) is expected
    assert state() == before
