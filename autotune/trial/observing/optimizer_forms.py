"""Times a step of the script's optimizer and of the fused form, on copies of the parameters."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from autotune.model.observation import OptimizerTimes
from autotune.trial.observing.layer_formats import shortest_s
from autotune.trial.torch.device_clock import Clock

LIMIT_S = 0.25
OF_TORCH = "torch.optim"


def optimizer_times(optimizer: torch.optim.Optimizer, place: str, clock: Clock) -> OptimizerTimes | None:
    """Times of both forms; None when torch has no fused form, or when the script already uses the fused form.

    Args:
        optimizer: The script's optimizer.
        place: The line of the user's code that builds the optimizer.
        clock: The clock of the device.
    """
    cls: Any = type(optimizer)
    knows_fused = cls.__module__.startswith(OF_TORCH) and "fused" in inspect.signature(cls.__init__).parameters
    groups = optimizer.param_groups
    if not knows_fused or any(group.get("fused") for group in groups):
        return None
    if any(group.get(name) for group in groups for name in ("capturable", "differentiable")):
        return None
    try:
        own = _step_s(cls, groups, clock, {})
        fused = _step_s(cls, groups, clock, {"fused": True, "foreach": None})
    except Exception:  # a parameter without a fused kernel or without copies
        return None
    return OptimizerTimes(name=cls.__name__, place=place, own_s=own, fused_s=fused)


def _step_s(cls: Any, groups: list[dict[str, Any]], clock: Clock, changes: dict[str, Any]) -> float:
    known = inspect.signature(cls.__init__).parameters
    copies = []
    for group in groups:
        parameters = [_copy(parameter) for parameter in group["params"] if parameter.requires_grad]
        options = {name: value for name, value in group.items() if name in known and name != "params"}
        copies.append({**options, **changes, "params": parameters})
    copied = cls(copies)
    step = cls.step
    step = getattr(step, "__wrapped__", step)  # beneath the wrapper that counts the script's steps
    return shortest_s(lambda: step(copied), clock, limit_s=LIMIT_S)


def _copy(parameter: torch.Tensor) -> torch.Tensor:
    copied = parameter.detach().clone().requires_grad_()
    copied.grad = torch.zeros_like(copied)
    return copied
