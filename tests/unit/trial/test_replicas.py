"""The devices of one process are those of its parameters and of its replicas."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from autotune.trial.step.replicas import device_numbers, num_replicas


def data_parallel(*numbers: int) -> torch.nn.DataParallel[torch.nn.Module]:
    """A model as it is wrapped on a machine with GPUs; here the wrapper finds none."""
    made: torch.nn.DataParallel[torch.nn.Module] = torch.nn.DataParallel(torch.nn.Linear(2, 2))
    made.device_ids = list(numbers)
    return made


def parameter_on(number: int | None) -> torch.Tensor:
    kind = "cpu" if number is None else "cuda"
    return SimpleNamespace(device=SimpleNamespace(type=kind, index=number))  # type: ignore[return-value]


def test_a_model_that_is_wrapped_for_one_device_has_one_replica() -> None:
    assert num_replicas(torch.nn.Linear(2, 2)) == num_replicas(data_parallel()) == num_replicas(data_parallel(0)) == 1
    assert num_replicas(torch.nn.Sequential(data_parallel(0, 1))) == 2


def test_the_devices_of_replicas_and_of_layers_count() -> None:
    assert device_numbers([torch.nn.Linear(2, 2)], [parameter_on(None)]) == ()
    assert device_numbers([data_parallel(0, 1)], [parameter_on(0)]) == (0, 1)
    assert device_numbers([torch.nn.Linear(2, 2)], [parameter_on(1), parameter_on(0), parameter_on(1)]) == (0, 1)
