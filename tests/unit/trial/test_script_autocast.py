"""A script's GradScaler stands aside under bf16: it scales nothing, and its checkpoints stay what they were."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from autotune.settings import Precision
from autotune.trial.step.script_autocast import OwnAutocast
from autotune.trial.torch.patching import recorded, unwrap

Scaler: Any = torch.amp.GradScaler


class Sharded(Scaler):
    """Scales and unscales by itself, and prepares itself only when enabled, as the scaler of FSDP does."""

    def __init__(self) -> None:
        super().__init__("cpu")
        if self.is_enabled():
            self.factor = 2.0**16

    def scale(self, outputs: torch.Tensor) -> torch.Tensor:
        return outputs * self.factor if self.is_enabled() else outputs

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        if self.is_enabled():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad /= self.factor

    def update(self, new_scale: Any = None) -> None:
        if self.is_enabled():
            self.factor *= 2


@pytest.fixture
def own() -> Iterator[OwnAutocast]:
    found = OwnAutocast("cpu", Precision.BF16)
    with recorded() as seams:
        found.install()
    yield found
    found.take_back()
    unwrap(seams)


def stepped(scaler: Any) -> float:
    """The parameter 1 after a step of SGD with rate 0.1 and gradient 1."""
    parameter = torch.nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler.scale(parameter * 1.0).backward()
    scaler.step(optimizer)
    scaler.update()
    return float(parameter.detach())


def plain_state() -> dict[str, Any]:
    state: dict[str, Any] = Scaler("cpu", init_scale=512.0).state_dict()
    return state


@pytest.mark.parametrize("make", [lambda: Scaler("cpu"), Sharded], ids=["torch's", "a subclass"])
def test_a_scaler_of_any_class_scales_nothing(own: OwnAutocast, make: Any) -> None:
    scaler = make()
    assert stepped(scaler) == pytest.approx(0.9)
    assert not scaler.is_enabled() and scaler.get_scale() == 1.0


def test_a_scaler_of_a_class_built_before_scales_nothing(own: OwnAutocast) -> None:
    own.take_back()
    scaler = Sharded()
    later = OwnAutocast("cpu", Precision.BF16)
    with recorded() as seams:
        later.install()
    assert stepped(scaler) == pytest.approx(0.9)
    later.take_back()
    unwrap(seams)
    assert scaler.is_enabled() and float(scaler.scale(torch.ones(()))) == 2.0**16


def test_a_checkpoint_holds_the_state_of_the_scaler(own: OwnAutocast) -> None:
    scaler = Scaler("cpu", init_scale=512.0)
    stepped(scaler)
    assert scaler.state_dict() == plain_state()
    assert copy.deepcopy(scaler).state_dict() == plain_state()
    assert scaler.get_scale() == 1.0 and stepped(scaler) == pytest.approx(0.9)


@pytest.mark.parametrize("has_stepped", [False, True])
def test_a_checkpoint_is_loaded_into_a_scaler_that_stands_aside_then(own: OwnAutocast, has_stepped: bool) -> None:
    scaler = Scaler("cpu", init_scale=4.0)
    if has_stepped:
        stepped(scaler)
    scaler.load_state_dict(plain_state())
    assert stepped(scaler) == pytest.approx(0.9)
    assert scaler.state_dict() == plain_state()
    own.take_back()
    assert scaler.get_scale() == 512.0


def test_scalers_of_a_class_first_built_meanwhile_scale_again_afterwards(own: OwnAutocast) -> None:
    class Later(Sharded):
        def scale(self, outputs: torch.Tensor) -> torch.Tensor:
            return super().scale(outputs)

    scaler = Later()
    assert stepped(scaler) == pytest.approx(0.9)
    own.take_back()
    assert scaler.is_enabled() and float(scaler.scale(torch.ones(()))) == 2.0**16
    assert scaler.is_enabled()
