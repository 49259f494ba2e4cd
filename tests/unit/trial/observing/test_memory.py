from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from autotune.trial.observing import device_times
from autotune.trial.observing.device_times import covered_s
from autotune.trial.observing.memory_kinds import ActivationWatch, memory_kinds, total_bytes


def test_memory_is_told_by_kind_and_shared_memory_counts_once():
    model = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.BatchNorm1d(20), torch.nn.Linear(20, 1))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 10)).sum().backward()
    optimizer.step()
    kinds = memory_kinds([model, model], [optimizer], activations_bytes=None, batch_bytes=160)
    num_parameters = 10 * 20 + 20 + 20 + 20 + 20 + 1
    assert kinds.parameters_bytes == kinds.gradients_bytes == 4 * num_parameters
    assert kinds.buffers_bytes == 4 * 40 + 8
    assert kinds.optimizer_state_bytes == 8 * num_parameters + 6 * 4
    assert kinds.activations_bytes is None


def test_a_layer_that_was_never_called_takes_no_memory():
    model = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.LazyBatchNorm1d())
    optimizer = torch.optim.SGD(model.parameters())
    kinds = memory_kinds([model], [optimizer], activations_bytes=None, batch_bytes=160)
    assert (kinds.parameters_bytes, kinds.buffers_bytes) == (4 * (10 * 20 + 20), 8)  # the count of batches has a shape


def test_activations_are_what_autograd_keeps_beyond_parameters():
    model = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.ReLU(), torch.nn.Linear(20, 1))
    inputs = torch.randn(4, 10)
    watch = ActivationWatch(model.parameters())
    watch.begin()
    loss = model(inputs).sum()
    loss.backward()
    # The input of each layer; ReLU keeps its output, which is the last layer's input.
    assert watch.end() == total_bytes([inputs]) + 4 * 20 * 4
    assert model[0].weight.grad is not None


def test_time_is_covered_once_however_many_kernels_run_in_it():
    assert covered_s([]) == 0.0
    assert covered_s([(0.0, 2.0), (1.0, 3.0), (1.5, 1.7), (5.0, 6.0)]) == 4.0


@pytest.mark.parametrize(
    ("name", "device", "is_annotation", "is_work"),
    [
        ("ampere_sgemm_128x64_nn", "CUDA", False, True),
        ("Memcpy HtoD (Pageable -> Device)", "CUDA", False, True),
        ("Optimizer.step#Adam.step", "CUDA", False, False),
        ("my part", "CUDA", True, False),
        ("aten::mm", "CPU", False, False),
    ],
)
def test_only_kernels_and_copies_are_work_of_the_device(name, device, is_annotation, is_work):
    kind = SimpleNamespace(name=device)
    event = SimpleNamespace(name=name, device_type=kind, is_user_annotation=is_annotation)
    assert device_times._is_work(event) is is_work
