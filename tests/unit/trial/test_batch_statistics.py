"""Layers that normalise by the statistics of their batches."""

from __future__ import annotations

import pytest
import torch

from autotune.trial.probe.batch_statistics import BatchStatistics


class OwnNorm(torch.nn.Module):
    """A norm of the script's own, as flows have; a frozen one reads its buffers alone."""

    def __init__(self, is_frozen: bool = False) -> None:
        super().__init__()
        self.is_frozen = is_frozen
        self.register_buffer("running_mean", torch.zeros(3))
        self.register_buffer("running_var", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.is_frozen:
            self.running_mean.mul_(0.9).add_(0.1 * x.mean(0))
            self.running_var.mul_(0.9).add_(0.1 * x.var(0))
        return (x - self.running_mean) / self.running_var.sqrt()


class ByKernel(OwnNorm):
    """A norm that hands its buffers to torch's own function."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.batch_norm(x, self.running_mean, self.running_var, training=True)


class NewBuffers(OwnNorm):
    """A norm that assigns its buffers anew."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.running_mean = 0.9 * self.running_mean + 0.1 * x.mean(0)
        return x - self.running_mean


@pytest.mark.parametrize(
    ("layer", "number"),
    [
        (torch.nn.BatchNorm1d(3), 1),
        (torch.nn.BatchNorm1d(3).eval(), 0),
        (torch.nn.BatchNorm1d(3, track_running_stats=False), 1),
        (torch.nn.LayerNorm(3), 0),
        (torch.nn.InstanceNorm1d(3, track_running_stats=True), 0),
        (OwnNorm(), 1),
        (ByKernel(), 1),
        (NewBuffers(), 1),
        (OwnNorm(is_frozen=True), 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, torch.nn.Module) else str(value),
)
def test_layers_are_counted_whose_output_depends_on_the_rest_of_the_batch(layer: torch.nn.Module, number: int) -> None:
    found = BatchStatistics()
    found.look(layer.modules())
    layer(torch.randn(4, 3) if not isinstance(layer, torch.nn.InstanceNorm1d) else torch.randn(4, 3, 5))
    found.look(layer.modules())
    assert found.count(layer.modules()) == number
