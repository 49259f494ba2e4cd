"""Calls of modules as they are told while roots are looked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from autotune.trial.roots import Roots


class Checkpointed(torch.nn.Module):
    """Runs its part without gradients, as a checkpoint does before it runs it again."""

    def __init__(self) -> None:
        super().__init__()
        self.part = torch.nn.Linear(2, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.part(inputs)
        result: torch.Tensor = self.part(inputs)
        return result


@pytest.fixture
def calls() -> Iterator[list[bool]]:
    told: list[bool] = []
    roots = Roots()
    roots.on_any_call = told.append
    roots.install()
    yield told
    roots.stop()


def test_a_pass_without_gradients_within_the_models_own_is_none(calls: list[bool]) -> None:
    Checkpointed()(torch.ones(1, 2))
    assert calls == [True]


def test_every_call_of_a_validation_is_told(calls: list[bool]) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with torch.no_grad():
        model(torch.ones(1, 2))
    model(torch.ones(1, 2))
    with torch.inference_mode():
        model(torch.ones(1, 2))
    assert calls == [False, False, True, False, False]
