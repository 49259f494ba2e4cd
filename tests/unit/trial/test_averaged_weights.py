"""Averages of the weights, as scripts keep them per batch, move with the optimizer's step under accumulation."""

from __future__ import annotations

import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from autotune.model.facts import LossReduction
from autotune.trial.step.gradients import Gradients
from autotune.trial.step.steps import Steps
from autotune.trial.torch.patching import recorded, unwrap

DECAY = 0.9


def averaged(num_micro_batches: int, num_samples: int, batch_size: int) -> tuple[list[float], int, list[float]]:
    """Averaged weights, number of averages, and weights of a script that averages after each batch."""
    steps, mean = Steps(), LossReduction.MEAN
    gradients = Gradients(steps, grad_accum_steps=num_micro_batches, reduction=mean, scaled_on=None)
    with recorded() as seams:
        gradients.install()
        steps.install()
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for inputs in torch.randn(num_samples, 4).split(batch_size):
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
            average.update_parameters(model)
        gradients.epoch_ends()
    assert not unwrap(seams)
    return flat(average.module), int(average.n_averaged), flat(model)


def flat(model: torch.nn.Module) -> list[float]:
    return [value for weight in model.parameters() for value in weight.detach().flatten().tolist()]


@pytest.mark.parametrize("num_samples", [64, 72], ids=["whole steps", "an incomplete step at the end"])
def test_an_average_kept_per_batch_moves_once_per_step(num_samples: int) -> None:
    whole = averaged(1, num_samples, 16)
    split = averaged(4, num_samples, 4)
    assert whole[1] == split[1] == -(-num_samples // 16)
    assert split[2] == pytest.approx(whole[2], rel=1e-5, abs=1e-6)
    assert split[0] == pytest.approx(whole[0], rel=1e-5, abs=1e-6)
