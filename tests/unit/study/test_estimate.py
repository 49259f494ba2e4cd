"""The memory of a script, estimated from one probe, for this device and for others."""

from __future__ import annotations

import pytest
import torch

from autotune.errors import UsageError
from autotune.lab.function_runner import FunctionRunner
from autotune.measure.memory_estimate import MemoryParts
from autotune.study.estimate import card_cap_bytes, estimate, fixed_bytes
from autotune.trial.probe.saved_activations import SavedActivations
from autotune.units import GIB, MIB
from tests.unit.facts import script_facts
from tests.unit.study.whole_search import folder

__all__ = ["folder"]

PARTS = {
    "parameter_bytes": 1 * GIB,
    "gradient_bytes": 1 * GIB,
    "optimizer_bytes": 2 * GIB,
    "saved_bytes": 6 * GIB,
    "batch_size": 8,
}


def test_the_peak_grows_with_the_batch_from_the_gradients_work_on():
    parts = MemoryParts(**PARTS)
    assert parts.peak_at(8) == 9 * GIB, "parameters, moments and activations, before there are gradients"
    assert parts.peak_at(32) == 27 * GIB
    assert parts.peak_at(1) == 5 * GIB, "parameters, moments, gradients and a copy of these in the step"


def test_a_measured_peak_tells_what_a_forward_pass_needs_beside_its_activations():
    parts = MemoryParts(**PARTS, peak_bytes=12 * GIB)
    assert parts.peak_at(8) == 12 * GIB and parts.peak_at(16) == 21 * GIB
    wild = MemoryParts(**PARTS, peak_bytes=90 * GIB, benchmarks_kernels=True)
    assert wild.peak_at(8) < 20 * GIB, "the benchmark of kernels made this peak"
    assert MemoryParts(**PARTS, peak_bytes=45 * GIB).peak_at(8) == 45 * GIB, "a longer batch than the first made it"


def test_memory_that_is_no_part_of_training_stays_at_every_micro_batch():
    parts = MemoryParts(**PARTS, other_bytes=2 * GIB, peak_bytes=11 * GIB)
    assert parts.peak_at(8) == 11 * GIB and parts.peak_at(16) == 17 * GIB
    assert parts.peak_at(1) == 7 * GIB


@pytest.mark.parametrize(("num_micro_batches", "gib"), [(1, 3.5), (4, 4.5)])
def test_what_does_not_grow_with_the_batch_is_known_without_activations(num_micro_batches, gib):
    """Also for a script with a compiled model, which shows no activations; gradients stay between micro-batches."""
    facts = script_facts(
        device="cuda",
        parameter_bytes=1 * GIB,
        gradient_bytes=1 * GIB,
        optimizer_state_bytes=2 * GIB,
        workspace_bytes=GIB // 2,
        num_micro_batches_per_step=num_micro_batches,
        saved_bytes=None,
    )
    assert fixed_bytes(facts, 500 * MIB) == pytest.approx(1.05 * gib * GIB + 500 * MIB)


@pytest.mark.parametrize("changes", [{"device": "cpu", "parameter_bytes": GIB}, {"device": "cuda"}])
def test_nothing_is_known_of_a_cpu_or_without_parameters(changes):
    assert fixed_bytes(script_facts(**changes), 0) is None


def test_the_largest_batch_is_the_largest_that_fits():
    parts = MemoryParts(**PARTS)
    largest = parts.largest_batch(24 * GIB)
    assert 1.05 * parts.peak_at(largest) <= 24 * GIB < 1.05 * parts.peak_at(largest + 1)
    assert parts.largest_batch(4 * GIB) == 0
    assert MemoryParts(**{**PARTS, "saved_bytes": 0}).largest_batch(24 * GIB) is None


@pytest.mark.parametrize(
    ("card", "gib"), [("h100", 72.0), ("A100", 72.0), ("rtx4090", 21.6), ("RTX 4090", 21.6), ("24GiB", 21.6)]
)
def test_a_card_is_named_or_given_by_its_memory(card, gib):
    assert card_cap_bytes(card) == int(gib * GIB) or abs(card_cap_bytes(card) - gib * GIB) < MIB


@pytest.mark.parametrize("card", ["h1000", "50%", ""])
def test_an_unknown_card_is_refused_with_the_known_ones(card):
    with pytest.raises(UsageError, match=r"is not known.*24GiB.*h200"):
        card_cap_bytes(card)


def test_one_probe_gives_the_estimate_for_this_device_and_for_others(folder):
    facts = script_facts(
        parameter_bytes=100 * MIB, gradient_bytes=100 * MIB, optimizer_state_bytes=200 * MIB, saved_bytes=640 * MIB
    )
    folder.runner = FunctionRunner(lambda settings: 1.0, facts)
    found = estimate(folder.spec(), ("l4", "2GiB"), on_event=lambda event: None, open_runner=folder.open_runner)
    document = found.document()
    assert document["activation_bytes_per_sample"] == 10 * MIB and document["batch_size"] == 64
    sizes = {room["card"]: room["batch_size"] for room in document["cards"]}
    assert list(sizes) == ["this one", "l4", "2GiB"]
    assert sizes["l4"] > sizes["this one"] > sizes["2GiB"] > 64
    assert folder.studies() == [], "nothing is stored"


def test_a_script_that_shows_no_activations_is_refused(folder):
    folder.runner = FunctionRunner(lambda settings: 1.0, script_facts())
    with pytest.raises(UsageError, match="shows neither its activations"):
        estimate(folder.spec(), on_event=lambda event: None, open_runner=folder.open_runner)


def test_activations_kept_for_backward_are_counted_once_and_without_weights():
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    saved, inputs = SavedActivations(), torch.randn(16, 32)
    with saved.look(model):
        output = model(inputs)
    assert saved.num_bytes == 4 * (16 * 32 + 16 * 64), "the input and the output of the first function, once each"
    output.sum().backward()
    assert model[0].weight.grad is not None


def test_layers_without_a_shape_and_transforms_of_functions_train_in_the_probe_as_elsewhere():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lazy, self.last = torch.nn.LazyLinear(8), torch.nn.Linear(8, 1)

        def forward(self, inputs):
            hidden = self.lazy(inputs)
            slopes = torch.func.vmap(torch.func.grad(lambda each: self.last(each).sum()))(hidden)
            return self.last(torch.relu(hidden)) + slopes.sum()

    model, saved, forbid = Model(), SavedActivations(), torch.autograd.graph.disable_saved_tensors_hooks
    with saved.look(model):
        model(torch.randn(4, 16)).sum().backward()
    assert model.lazy.weight.grad is not None
    assert saved.num_bytes > 0
    assert torch.autograd.graph.disable_saved_tensors_hooks is forbid
