"""Batches repeated as if the loader had made larger ones."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch

from autotune.trial.loader.larger_batch import UnrepeatableError, repeated

Pair = namedtuple("Pair", "image label")


def test_every_tensor_is_repeated_sample_by_sample() -> None:
    images, labels = torch.arange(6.0).reshape(3, 2), torch.tensor([0, 1, 2])
    larger = repeated([images, labels], 2)
    assert larger[0].shape == (6, 2) and larger[1].tolist() == [0, 1, 2, 0, 1, 2]
    assert isinstance(larger, list)


def test_structures_keep_their_kind() -> None:
    image, label = torch.zeros(3, 2), torch.zeros(3)
    larger = repeated({"pair": Pair(image, label), "name": ["a", "b", "c"], "epoch": None, "split": "train"}, 4)
    assert type(larger["pair"]) is Pair and larger["pair"].image.shape == (12, 2)
    assert larger["name"] == ["a", "b", "c"] * 4
    assert (larger["epoch"], larger["split"]) == (None, "train")


def test_a_batch_as_it_is_is_not_touched() -> None:
    batch = object()
    assert repeated(batch, 1) is batch


@pytest.mark.parametrize(
    "batch",
    [
        [torch.zeros(3, 2), torch.zeros(7, 2), torch.zeros(3)],
        [torch.zeros(3, 2), torch.tensor(1.0)],
        [torch.zeros(3, 2), object()],
        [torch.zeros(3, 2), 7],
        ["no tensor"],
        torch.eye(3).to_sparse(),
    ],
)
def test_what_does_not_go_by_samples_is_refused(batch: object) -> None:
    with pytest.raises(UnrepeatableError):
        repeated(batch, 2)
