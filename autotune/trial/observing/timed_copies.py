"""Times copies of the heaviest layers in other number formats, and of the script's optimizer in the fused form."""

from __future__ import annotations

import copy
import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from autotune.model.observation import FormatRatio, OptimizerTimes
from autotune.settings import Precision
from autotune.trial.meter.host_clock import Clock
from autotune.trial.torch import torch_names

NUM_LAYERS = 3
LIMIT_S = 0.25
"""Seconds for a layer in one format, and for a form of the optimizer."""
LEAST_RUNS = 3
MAX_ATTEMPTS = 3
"""Most measurements of a ratio between two formats."""
LAYERS = (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
OF_TORCH = "torch.optim"
TF32_CAPABILITY, BF16_CAPABILITY = (8, 0), (8, 0)


@dataclass(frozen=True, slots=True)
class _Use:
    """A layer with the shape of its input and the cost of a call."""

    layer: torch.nn.Module
    shape: tuple[int, ...]
    dtype: torch.dtype
    multiplications: float


class LayerUses:
    """Notes the input sizes of layers with matrix products, until `detach`."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        self._uses: dict[int, _Use] = {}
        layers = {id(m): m for root in modules for m in root.modules() if isinstance(m, LAYERS)}
        self._handles = [layer.register_forward_hook(self._note) for layer in layers.values()]

    def detach(self) -> None:
        """Removes all hooks."""
        while self._handles:
            self._handles.pop().remove()

    def _note(self, layer: torch.nn.Module, inputs: Any, output: Any) -> None:
        given = inputs[0] if inputs else None
        weight = getattr(layer, "weight", None)
        if isinstance(given, torch.Tensor) and isinstance(output, torch.Tensor) and isinstance(weight, torch.Tensor):
            cost = output.numel() * weight.numel() / max(1, weight.shape[0])
            self._uses[id(layer)] = _Use(layer, tuple(given.shape), weight.dtype, float(cost))

    def heaviest(self) -> list[_Use]:
        """The layers with the most multiplications, the largest first."""
        return sorted(self._uses.values(), key=lambda use: use.multiplications, reverse=True)[:NUM_LAYERS]


def format_ratios(uses: LayerUses, clock: Clock, *, is_cuda: bool, is_autocast: bool) -> tuple[FormatRatio, ...]:
    """The time in the script's format over the time in each other format; empty when no comparison is possible.

    Args:
        uses: The layers and their inputs.
        clock: The clock of the device.
        is_cuda: Whether the script trains on CUDA.
        is_autocast: Whether the script runs autocast by itself; no formats are compared then.
    """
    heaviest = uses.heaviest()
    if not heaviest or is_autocast:
        return ()
    dtype = heaviest[0].dtype
    heaviest = [use for use in heaviest if use.dtype == dtype]
    candidates = _candidates(dtype, is_cuda=is_cuda)
    if not candidates:
        return ()
    try:
        return tuple(filter(None, (_ratio(heaviest, clock, dtype, precision) for precision in candidates)))
    except Exception:  # no kernel, or a layer without copies, such as a layer with weights spread over processes
        return ()


def _ratio(uses: Sequence[_Use], clock: Clock, dtype: torch.dtype, precision: Precision) -> FormatRatio | None:
    """The ratio of times; an impossible ratio is measured again, and None after as many as `MAX_ATTEMPTS`."""
    for _ in range(MAX_ATTEMPTS):
        own_s = sum(_time(use, clock, dtype, autocast=None) for use in uses)
        then_s = sum(_time_in(use, clock, precision) for use in uses)
        ratio = FormatRatio(precision=precision, ratio=own_s / then_s, num_layers=len(uses))
        if ratio.is_possible:
            return ratio
    return None


def _candidates(dtype: torch.dtype, *, is_cuda: bool) -> list[Precision]:
    if dtype == torch.float64:
        return [Precision.FP32]
    if dtype != torch.float32:
        return []
    if not is_cuda:
        return [Precision.BF16]
    capability = torch.cuda.get_device_capability()
    found = [Precision.TF32] if capability >= TF32_CAPABILITY and not torch_names.allows_tf32() else []
    return [*found, Precision.BF16 if capability >= BF16_CAPABILITY else Precision.FP16]


def _time_in(use: _Use, clock: Clock, precision: Precision) -> float:
    if precision is Precision.FP32:
        return _time(use, clock, torch.float32, autocast=None)
    if precision is not Precision.TF32:
        autocast = torch.bfloat16 if precision is Precision.BF16 else torch.float16
        return _time(use, clock, use.dtype, autocast=autocast)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        return _time(use, clock, use.dtype, autocast=None)
    finally:
        torch.set_float32_matmul_precision(before)


def _time(use: _Use, clock: Clock, dtype: torch.dtype, *, autocast: torch.dtype | None) -> float:
    """Seconds of one forward and backward pass of a copy."""
    layer = copy.deepcopy(use.layer).to(dtype)
    device = next(layer.parameters()).device
    given = torch.randn(use.shape, dtype=dtype, device=device, requires_grad=True)

    def run() -> None:
        with torch.autocast(device.type, dtype=autocast or torch.bfloat16, enabled=autocast is not None):
            result = layer(given)
        result.backward(torch.ones_like(result))

    return _shortest_s(run, clock)


def optimizer_times(optimizer: torch.optim.Optimizer, place: str, clock: Clock) -> OptimizerTimes | None:
    """Seconds of a step in the optimizer's own and in the fused form, on copies of the parameters.

    None when torch has no fused form, or when the script already uses the fused form.

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
    return _shortest_s(lambda: step(copied), clock)


def _copy(parameter: torch.Tensor) -> torch.Tensor:
    copied = parameter.detach().clone().requires_grad_()
    copied.grad = torch.zeros_like(copied)
    return copied


def _shortest_s(run: Callable[[], Any], clock: Clock) -> float:
    """Seconds of the shortest of several runs after a first, uncounted run; a disturbance only lengthens runs."""
    run()
    clock.finish()
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < LEAST_RUNS or time.perf_counter() - began < LIMIT_S:
        start = clock.mark()
        run()
        end = clock.mark()
        clock.finish()
        times.append(max(clock.seconds(start, end), 1e-9))
        clock.release(start)
        clock.release(end)
    return min(times)
