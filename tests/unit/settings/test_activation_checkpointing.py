"""Repeated blocks compute their activations again: the same gradients from fewer kept tensors, and undone in place."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch

from autotune.settings.activation_checkpointing import apply, observe, undo
from autotune.settings.repeated_blocks import repeated_blocks
from autotune.space.derive import derive_space
from tests.unit.facts import gpu_machine, script_facts, search_spec

# Torch 2.4 itself calls a deprecated name while it computes activations again.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.cpu.amp.autocast.*:FutureWarning")


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.drop = torch.nn.Linear(8, 32), torch.nn.Linear(32, 8), torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        result: torch.Tensor = x + scale * self.drop(self.down(torch.relu(self.up(x))))
        return result


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.blocks = torch.nn.Linear(4, 8), torch.nn.ModuleList(Block() for _ in range(3))
        self.head = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x, scale=0.5)
        result: torch.Tensor = self.head(x).mean()
        return result


def trained(model: torch.nn.Module) -> tuple[float, list[torch.Tensor], int]:
    """The loss, the gradients, and the number of elements that forward kept for backward."""
    kept: list[int] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.numel())
        return tensor

    torch.manual_seed(1)
    model.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = model(torch.randn(16, 4))
    num_kept = sum(kept)
    loss.backward()
    return float(loss.detach()), [p.grad.clone() for p in model.parameters() if p.grad is not None], num_kept


def test_gradients_are_the_same_from_fewer_kept_tensors_and_undo_returns_all() -> None:
    model = Model()
    names = list(model.state_dict())
    loss, gradients, num_kept = trained(model)
    apply(model)
    apply(model)
    assert observe([model]) and list(model.state_dict()) == names
    other, others, num_left = trained(model)
    assert other == loss and num_left < num_kept / 2
    assert all(torch.equal(one, two) for one, two in zip(gradients, others, strict=True))
    undo(model)
    assert not observe([model]) and trained(model)[2] == num_kept


def without_weights_of_blocks(model: Model) -> Model:
    with torch.no_grad():
        for parameter in model.blocks.parameters():
            parameter.zero_()
    return model


def test_a_copy_of_a_model_computes_with_its_own_weights() -> None:
    model = Model()
    expected, expected_of_copy = trained(model)[0], trained(without_weights_of_blocks(copy.deepcopy(model)))[0]
    apply(model)
    twin = copy.deepcopy(model)
    without_weights_of_blocks(model)
    assert trained(twin)[0] == expected and trained(model)[0] == expected_of_copy != expected
    assert observe([twin])
    undo(twin)
    assert not observe([twin]) and trained(twin)[0] == expected


def test_a_whole_model_is_stored_and_loaded_as_a_model_without_checkpoints() -> None:
    model, file = Model(), io.BytesIO()
    apply(model)
    torch.save(model, file)
    assert b"autotune" not in file.getvalue()
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    without_weights_of_blocks(model)
    assert not observe([loaded]) and trained(loaded)[0] != trained(model)[0]


class Stages(torch.nn.Module):
    """As a U-Net of diffusers: two lists of stages, and one more stage."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = (torch.nn.ModuleList(stage() for _ in range(number)) for number in (2, 3))
        self.middle = stage()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for each in (*self.down, self.middle, *self.up):
            x = each(x)
        return x


def stage() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))


class Compiled(torch.nn.Module):
    """As torch.compile's own, whose forward pass belongs to the object."""

    def __init__(self) -> None:
        super().__init__()
        self.own = stage()
        self.forward = self.own.forward


def test_blocks_whose_forward_pass_is_set_on_the_object_are_called_too() -> None:
    assert len(repeated_blocks(torch.nn.Sequential(torch.nn.ModuleList(Compiled() for _ in range(3))))) == 3


def test_lists_of_blocks_are_looked_into_since_nobody_calls_them() -> None:
    model = Stages()
    assert all(isinstance(block, torch.nn.Sequential) for block in repeated_blocks(model))
    apply(model)
    assert observe([model])


def test_a_block_keeps_a_forward_that_the_script_has_set() -> None:
    model = Model()
    for block in model.blocks:
        block.forward = lambda x, scale, own=block.forward: own(x, scale=0.0)  # type: ignore[method-assign]
    own = [vars(block)["forward"] for block in model.blocks]
    expected, _, num_kept = trained(model)
    apply(model)
    loss, _, num_left = trained(model)
    assert observe([model]) and loss == expected and num_left < num_kept / 2
    undo(model)
    assert [vars(block)["forward"] for block in model.blocks] == own and trained(model)[2] == num_kept


@pytest.mark.parametrize(
    ("model", "number"),
    [
        (Model(), 3),
        (torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(8, 2, 16), 3), 3),
        (torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4)), 0),
        (torch.nn.Linear(4, 4), 0),
        (Stages(), 5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_blocks_are_modules_that_stand_several_times_in_one_container(model: torch.nn.Module, number: int) -> None:
    assert len(repeated_blocks(model)) == number


@pytest.mark.parametrize(
    ("facts", "spec", "reason"),
    [
        ({}, {}, "no block that repeats"),
        ({"num_repeated_blocks": 4, "num_batch_norms": 8}, {}, "8 BatchNorm layers"),
        ({"num_repeated_blocks": 4}, {}, "whole batch already"),
        ({"num_repeated_blocks": 4, "num_micro_batches_per_step": 2}, {}, ""),
        ({"num_repeated_blocks": 4}, {"effective_batch": "free"}, ""),
        ({"num_repeated_blocks": 4}, {"ranges": (("activation_checkpointing", "true"),)}, ""),
    ],
)
def test_a_search_tries_it_where_the_micro_batch_may_grow(
    facts: dict[str, Any], spec: dict[str, Any], reason: str
) -> None:
    space = derive_space(script_facts(device="cuda", **facts), gpu_machine(), search_spec(**spec))
    refused = dict(space.refused).get("activation_checkpointing", "")
    assert reason in refused and bool(reason) is bool(refused)
