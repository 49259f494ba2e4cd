from __future__ import annotations

import pytest
import torch

from autotune.trial.batches import is_led_by_samples


@pytest.mark.parametrize(
    ("shape", "batch_size", "expected"),
    [
        ((8, 5), 8, True),
        ((5, 8), 8, False),
        ((35, 20), 20, False),
        ((3, 5), 8, True),
        ((100, 4), 8, False),
        ((8, 8), 8, True),
        ((7, 3), None, True),
    ],
    ids=["samples first", "time first", "much time first", "a small batch", "flattened", "both", "nobody knows"],
)
def test_the_first_dimension_is_that_of_the_samples_or_it_is_not(
    shape: tuple[int, ...], batch_size: int | None, expected: bool
) -> None:
    batch = {"inputs": torch.zeros(shape), "targets": [torch.zeros(shape)]}
    assert is_led_by_samples(batch, batch_size) is expected


def test_a_batch_without_tensors_is_led_by_nothing() -> None:
    assert not is_led_by_samples(["a", "b"], 2)
