"""The norm of a step's gradients, dense and sparse."""

from __future__ import annotations

import math

import torch
from torch import nn

from autotune.trial.step.gradients import gradient_norm


def test_sparse_gradients_count_and_rows_met_twice_are_added_up() -> None:
    table = nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 1, 3])).sum().backward()
    assert table.weight.grad is not None and table.weight.grad.is_sparse
    assert gradient_norm(table.parameters()) == math.sqrt(2 * 2**2 + 2 * 1**2)
    dense = nn.Parameter(torch.zeros(3))
    dense.grad = torch.tensor([1.0, 2.0, 0.0])
    assert gradient_norm([*table.parameters(), dense]) == math.sqrt(10 + 5)


def test_a_norm_that_is_not_finite_is_unknown() -> None:
    weight = nn.Parameter(torch.zeros(1))
    weight.grad = torch.tensor([math.inf])
    assert gradient_norm([weight]) is None
