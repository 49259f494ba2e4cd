"""Reads settings in force back from loaders, models and the process, for comparison with the settings asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from autotune.settings import SETTINGS, Precision, Value
from autotune.trial.apply.model_seams import MODEL_SEAMS
from autotune.trial.torch import torch_names


def settings_of_loader(loader: Any) -> dict[str, Value | None]:
    """Settings of a DataLoader by field; None = unknown."""
    return {each.name: each.read_of_loader(loader) for each in SETTINGS if each.read_of_loader is not None}


def loader_settings(loader: Any) -> dict[str, Value]:
    """Known settings of a DataLoader by field."""
    return {name: value for name, value in settings_of_loader(loader).items() if value is not None}


def settings_in_force(
    device: str,
    roots: Iterable[torch.nn.Module],
    precision: Precision | None,
    optimizers: Iterable[torch.optim.Optimizer],
) -> dict[str, Value]:
    """Settings of this process, of its models and of its optimizers, by field, for probes and trials.

    Args:
        device: Type of the device that trains.
        roots: Modules called by the script during the training.
        precision: Observed number format of the model; None = unknown.
        optimizers: Optimizers that have stepped.
    """
    return {**process_settings(device), **model_settings(roots, precision), **optimizer_settings(list(optimizers))}


def process_settings(device: str) -> dict[str, Value]:
    """Settings of the whole process, by field."""
    is_on_cuda = device == "cuda" and torch_names.is_cuda_on()
    observed: dict[str, Value] = {}
    for setting in SETTINGS:
        if setting.read is not None and (is_on_cuda or not setting.needs_accelerator):
            value = setting.read()
            if value is not None:
                observed[setting.name] = value
    return observed


def model_settings(roots: Iterable[torch.nn.Module], precision: Precision | None) -> dict[str, Value]:
    """Number format, memory format and compilation of the modules that train, by field."""
    modules = list(roots)
    observed: dict[str, Value] = {} if precision is None else {"precision": precision.value}
    for setting in SETTINGS:
        if setting.read_of_module is not None:
            readings = {setting.read_of_module(module) for module in modules} - {None}
            if len(readings) == 1:
                observed[setting.name] = readings.pop()  # type: ignore[assignment]
    for name, seam in MODEL_SEAMS.items():
        for each, observe in ((name, seam.observe), *seam.details.items()):
            value = observe(modules)
            if value is not None:
                observed[each] = value
    return observed


def optimizer_settings(optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, Value]:
    """Settings with the same value in all optimizers, by field."""
    observed: dict[str, Value] = {}
    for setting in SETTINGS:
        if setting.read_of_optimizer is not None:
            values = {setting.read_of_optimizer(optimizer) for optimizer in optimizers}
            value = values.pop() if len(values) == 1 else None
            if value is not None:
                observed[setting.name] = value
    return observed
