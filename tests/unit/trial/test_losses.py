"""The losses of the window: each is looked at, wherever it is and whatever its shape."""

from __future__ import annotations

import math

import pytest
import torch

from autotune.trial.losses import LossWatch
from autotune.trial.roots import Roots
from autotune.trial.steps import Steps


def watch_of(*losses: torch.Tensor, is_measuring: bool = True) -> LossWatch:
    steps = Steps()
    watch = LossWatch(steps, Roots())
    watch.install()
    watch.measure(is_measuring)
    for loss in losses:
        for listener in steps.on_backward:
            listener(loss)
    return watch


FINE, BROKEN = torch.tensor(0.5, requires_grad=True), torch.tensor(math.nan)


@pytest.mark.parametrize("broken", [BROKEN, torch.tensor(math.inf), torch.tensor([1.0, math.nan]), BROKEN.half()])
def test_one_loss_of_the_window_that_is_not_finite_is_enough(broken: torch.Tensor) -> None:
    assert not watch_of(FINE, broken, *[FINE] * 20).is_finite


def test_losses_of_any_shape_are_finite() -> None:
    losses = (FINE, torch.tensor([0.5]), torch.ones(2, 3), torch.tensor(1.0, dtype=torch.bfloat16), torch.empty(0))
    assert watch_of(*losses).is_finite


def test_before_the_window_the_last_loss_alone_counts() -> None:
    assert watch_of(BROKEN, FINE, is_measuring=False).is_finite
    assert not watch_of(FINE, BROKEN, is_measuring=False).is_finite


def test_a_loss_from_before_the_window_does_not_count_once_that_runs() -> None:
    watch = watch_of(BROKEN, is_measuring=False)
    watch.measure(True)
    assert watch.is_finite


def test_the_first_losses_are_kept_though_the_window_begins_with_them() -> None:
    watch = watch_of(*[FINE] * 20)
    assert watch.first_losses == (0.5,) * 8
