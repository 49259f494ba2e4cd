"""Targets of losses are counted wherever they can be read, and the script's losses go on as without the count."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from autotune.trial.step.loss_targets import LossTargets

LOGITS, TARGETS = torch.randn(4, 3, requires_grad=True), torch.tensor([0, 2, 1, -100])
# torch 2.13 deprecates TorchScript.
SCRIPTED = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")


class Model(torch.nn.Module):
    """Computes its own losses."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        outputs = self.layer(inputs)
        probabilities = torch.sigmoid(outputs)
        return functional.cross_entropy(outputs, targets) + functional.binary_cross_entropy(
            probabilities, torch.ones_like(probabilities)
        )


@pytest.fixture
def targets(monkeypatch: pytest.MonkeyPatch) -> LossTargets:
    for name in ("cross_entropy", "nll_loss", "binary_cross_entropy"):
        monkeypatch.setattr(functional, name, getattr(functional, name))
    watch = LossTargets()
    watch.install()
    return watch


def test_batches_with_unequal_numbers_of_targets_vary(targets: LossTargets) -> None:
    functional.cross_entropy(LOGITS, TARGETS).backward()
    targets.backward(4)
    functional.cross_entropy(LOGITS, TARGETS.clamp(min=0)).backward()
    assert not targets.vary
    targets.backward(4)
    assert targets.vary


def test_vmap_takes_gradients_per_sample_and_counts_nothing(targets: LossTargets) -> None:
    def loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits[None], target[None])

    gradients = torch.func.vmap(torch.func.grad(loss))(LOGITS, TARGETS.clamp(min=0))
    assert gradients.shape == LOGITS.shape
    targets.backward(4)
    assert not targets.vary


def test_a_loss_on_the_meta_device_counts_nothing(targets: LossTargets) -> None:
    assert functional.cross_entropy(LOGITS.to("meta"), TARGETS.to("meta")).is_meta
    targets.backward(4)
    assert not targets.vary


@SCRIPTED
@pytest.mark.parametrize("criterion", [torch.nn.CrossEntropyLoss, torch.nn.NLLLoss, torch.nn.BCELoss])
def test_torchscript_compiles_the_losses_of_torch(targets: LossTargets, criterion: type[torch.nn.Module]) -> None:
    inputs, wanted = torch.rand(4, 3), torch.ones(4, 3) if criterion is torch.nn.BCELoss else TARGETS
    assert torch.jit.script(criterion())(inputs, wanted) == criterion()(inputs, wanted)


@SCRIPTED
def test_torchscript_and_the_compiler_take_a_model_with_losses_of_two_probes(targets: LossTargets) -> None:
    LossTargets().install()
    model = Model()
    arguments = torch.randn(4, 3), TARGETS
    assert torch.jit.script(model)(*arguments) == model(*arguments)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert compiled(*arguments) == model(*arguments)
