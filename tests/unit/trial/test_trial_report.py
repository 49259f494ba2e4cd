"""What a report says of the parameters: whether training has changed any of those that it watches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from autotune.protocol.paths import TrialPaths
from autotune.trial.report.trial_report import MAX_WATCHED_VALUES, NUM_WATCHED_PARAMETERS, TrialReport, _part
from autotune.trial.step.steps import Steps


class Scale(torch.nn.Module):
    """A layer with one factor for each feature, as the norms of language models are."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(num_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def trained(model: torch.nn.Module, *, lr: float, num_steps: int = 4, in_between: Any = lambda optimizer: None) -> bool:
    """What is said of a model after so many steps of Adam."""
    optimizer, steps = torch.optim.AdamW(model.parameters(), lr=lr), Steps()
    unused: Any = None
    applied: Any = SimpleNamespace(steps=steps)
    report = TrialReport(TrialPaths(Path()), unused, applied, unused, unused, unused, has_loader=True)
    for number in range(num_steps):
        parameter = next(model.parameters())
        x = torch.randn(4, parameter.shape[-1], dtype=parameter.dtype)
        optimizer.zero_grad()
        model(x).float().square().mean().backward()
        optimizer.step()
        steps.stepped(optimizer)
        report.watch_parameters(optimizer)
        if number == 0:
            in_between(optimizer)
    return report.has_changed_parameters


def test_a_model_that_trains_has_changed() -> None:
    assert trained(torch.nn.Linear(8, 3), lr=0.01)


def test_one_whose_weights_stay_what_they_are_has_not() -> None:
    assert not trained(torch.nn.Linear(8, 3), lr=1e-30)


def test_a_rate_of_zero_is_the_schedules_affair_and_one_step_says_nothing() -> None:
    def end_schedule(optimizer: torch.optim.Optimizer) -> None:
        optimizer.param_groups[0]["lr"] = 0.0

    assert trained(torch.nn.Linear(8, 3), lr=0.01, in_between=end_schedule)
    assert trained(torch.nn.Linear(8, 3), lr=1e-30, num_steps=1)


@pytest.mark.parametrize("lr", [1e-3, 2e-5])
def test_factors_near_one_that_half_precision_holds_in_place_are_not_taken_for_all_of_a_model(lr: float) -> None:
    """A learning rate of a thousandth is below half the distance of 1 to the next number of bf16."""
    torch.manual_seed(0)
    layers = [
        layer for _ in range(NUM_WATCHED_PARAMETERS) for layer in (Scale(64), torch.nn.Linear(64, 64, bias=False))
    ]
    assert trained(torch.nn.Sequential(*layers).bfloat16(), lr=lr)


def test_what_is_watched_of_a_large_parameter_is_a_small_part_from_all_over_it() -> None:
    model = torch.nn.Linear(100, 50_000)

    def change_last_rows(optimizer: torch.optim.Optimizer) -> None:
        optimizer.param_groups[0]["lr"] = 1e-30
        with torch.no_grad():
            model.weight[-2000:] += 1.0

    assert trained(model, lr=0.01, in_between=change_last_rows)


def test_parameters_of_any_shape_are_watched_and_few_values_of_each() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in ((), (0,), (100_000,), (3, 5), (2, 0), (9, 8, 7))]
    steps, unused = Steps(), None
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    applied: Any = SimpleNamespace(steps=steps)
    report = TrialReport(TrialPaths(Path()), unused, applied, unused, unused, unused, has_loader=True)  # type: ignore[arg-type]
    report.watch_parameters(optimizer)
    sizes = [before.numel() for _, before in report._watched]
    assert len(sizes) == 4 and all(0 < size <= MAX_WATCHED_VALUES for size in sizes)


class Spread(torch.Tensor):
    """Stands for a parameter of which each rank has a share."""

    def to_local(self) -> torch.Tensor:
        return self.as_subclass(torch.Tensor)[:5]


def test_of_a_parameter_that_is_spread_over_ranks_this_ranks_share_is_watched() -> None:
    spread = torch.zeros(9, 8, 2000).as_subclass(Spread)
    assert _part(spread).shape == (1, 8, 2000)
    assert _part(spread[:, :, :4]).shape == (5, 8, 4)
