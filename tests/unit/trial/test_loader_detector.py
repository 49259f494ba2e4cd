"""What the probe reads from a DataLoader."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, Sampler, SequentialSampler, TensorDataset

from autotune.trial.probe.loader_detector import _is_shuffled

DATA = TensorDataset(torch.zeros(8, 1))


class Seeded(RandomSampler):
    """As accelerate's sampler, which sets the seed of each epoch."""


class OwnOrder(Sampler[int]):
    def __iter__(self) -> Any:
        return iter(range(8))

    def __len__(self) -> int:
        return 8


@pytest.mark.parametrize(
    ("sampler", "is_shuffled"),
    [
        (RandomSampler(DATA), True),
        (Seeded(DATA), True),
        (DistributedSampler(DATA, num_replicas=2, rank=0), True),
        (DistributedSampler(DATA, num_replicas=2, rank=0, shuffle=False), False),
        (SequentialSampler(DATA), False),
        (OwnOrder(), False),
    ],
)
def test_a_loader_is_shuffled_by_a_random_sampler_or_one_derived_from_it(sampler: Any, is_shuffled: bool) -> None:
    assert _is_shuffled(DataLoader(DATA, batch_size=2, sampler=sampler)) is is_shuffled
