"""Schedules that a trial follows past their end: the rates stay what they were, and what is broken stays so."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR

from autotune.trial.step.schedulers import _keeping_last_rate

NUM_STEPS = 8
TABLE = [0.9**step for step in range(NUM_STEPS)]


def rates_of(make: Callable[[torch.optim.Optimizer], Any], num_steps: int = 2 * NUM_STEPS) -> list[Any]:
    """Learning rates of a script that steps on and on."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.ones(1)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scheduler = make(optimizer)
    step = _keeping_last_rate(type(scheduler).step)
    rates = []
    for _ in range(num_steps):
        optimizer.step()
        step(scheduler)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


def of_step(factor: Callable[[int], Any]) -> Callable[[torch.optim.Optimizer], LambdaLR]:
    return lambda optimizer: LambdaLR(optimizer, factor)


@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: OneCycleLR(optimizer, 0.1, total_steps=NUM_STEPS),
        of_step(lambda step: TABLE[step]),
        of_step(lambda step: 1 / (NUM_STEPS - step)),
        of_step(lambda step: 1 - step / NUM_STEPS),
        of_step(lambda step: (1 - step / NUM_STEPS) ** 0.9),
        of_step(lambda step: 1.0 if step < NUM_STEPS else math.nan),
        of_step(lambda step: math.sqrt(NUM_STEPS - step)),
    ],
    ids=["one cycle", "table", "division", "falls below 0", "becomes complex", "is no number", "root"],
)
def test_past_its_end_a_schedule_stays_where_it_was(make: Callable[[torch.optim.Optimizer], Any]) -> None:
    rates = rates_of(make)
    assert all(type(rate) is float and 0 <= rate < math.inf for rate in rates)
    assert len(set(rates[NUM_STEPS:])) == 1
    assert rates[-1] in rates[NUM_STEPS - 2 : NUM_STEPS]


def test_a_schedule_that_has_not_ended_moves_as_ever() -> None:
    assert rates_of(of_step(lambda step: 1 / (1 + step)), 3) == pytest.approx([0.1 / 2, 0.1 / 3, 0.1 / 4])


def test_one_that_is_broken_from_the_start_raises_as_ever() -> None:
    with pytest.raises(IndexError):
        rates_of(of_step(lambda step: [1.0][step]))


def test_rates_that_are_tensors_are_left_alone() -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([parameter], lr=torch.tensor(0.1))
    scheduler = LambdaLR(optimizer, lambda step: 0.5**step)
    parameter.grad = torch.ones(1)
    optimizer.step()
    _keeping_last_rate(LambdaLR.step)(scheduler)
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.05)
