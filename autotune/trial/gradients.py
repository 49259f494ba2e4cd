"""Gradient accumulation and loss scaling under a script that knows of neither.

The script calls backward, clips, steps and zeroes once per micro-batch. With K micro-batches per step the first K-1
calls of `step` do nothing, the gradients are left alone by `zero_grad` and by clipping until the K-th, and schedulers
that are stepped per batch move with the optimizer. A loss that is a mean over its samples is divided by K; a summed one
is not. Under fp16 the loss is scaled, and gradients are unscaled before anybody reads them at the K-th micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from autotune.model.facts import LossReduction
from autotune.trial.patching import wrap
from autotune.trial.steps import Steps


class Gradients:
    """The seam between backward and the parameters' update; for exactly one optimizer."""

    def __init__(
        self, steps: Steps, *, grad_accum_steps: int, reduction: LossReduction, scaler: torch.amp.GradScaler | None
    ) -> None:
        self._steps = steps
        self._accumulation = grad_accum_steps
        self._divides = reduction is LossReduction.MEAN
        self._scaler = scaler
        self._num_pending = 0
        """Micro-batches whose gradients wait for a step; the running one is counted from its backward on."""
        self._is_unscaled = False
        self._held_schedulers: dict[int, Any] = {}

    @property
    def is_pending(self) -> bool:
        """Whether micro-batches wait for their step."""
        return 0 < self._num_pending < self._accumulation

    def install(self) -> None:
        """Attaches to backward, step, zero_grad, clipping and schedulers."""
        wrap(torch.autograd, "backward", self._wrap_backward)
        self._steps.policy = self._step
        if self._accumulation > 1:
            wrap(torch.optim.Optimizer, "zero_grad", self._wrap_zero_grad)
            wrap(torch.nn.Module, "zero_grad", self._wrap_zero_grad)
            for module in (torch.nn.utils, torch.nn.utils.clip_grad):
                wrap(module, "clip_grad_norm_", self._wrap_clip_norm)
                wrap(module, "clip_grad_value_", self._wrap_clip_value)
            for cls in _scheduler_classes():
                wrap(cls, "step", self._wrap_scheduler_step)

    def epoch_ends(self) -> None:
        """Steps the micro-batches that do not fill a step, with their true count, before the script goes on."""
        optimizer = self._steps.only_optimizer
        if not self.is_pending or optimizer is None:
            return
        if self._divides:
            factor = self._accumulation / self._num_pending
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.grad.mul_(factor)
        held = list(self._held_schedulers.values())
        self._num_pending = self._accumulation
        self._unscale(optimizer)
        optimizer.step()
        for scheduler in held:
            scheduler.step()
        optimizer.zero_grad()

    def _wrap_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            if self._num_pending >= self._accumulation:
                self._num_pending = 0
            self._num_pending += 1
            original(self._scaled(tensors), grad_tensors, *args, **kwargs)
            optimizer = self._steps.only_optimizer
            if self._num_pending == self._accumulation and optimizer is not None:
                self._unscale(optimizer)

        return backward

    def _scaled(self, tensors: Any) -> Any:
        if not isinstance(tensors, torch.Tensor):
            return tuple(self._scaled(tensor) for tensor in tensors)
        if self._accumulation > 1 and self._divides:
            tensors = tensors / self._accumulation
        return self._scaler.scale(tensors) if self._scaler is not None else tensors

    def _unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Before clipping and all other readers of gradients, once per step."""
        if self._scaler is not None and not self._is_unscaled:
            self._scaler.unscale_(optimizer)
            self._is_unscaled = True

    def _step(self, optimizer: torch.optim.Optimizer, call: Callable[[], Any]) -> tuple[Any, bool]:
        if self._num_pending < self._accumulation:
            return None, False
        self._held_schedulers.clear()
        if self._scaler is None:
            return call(), True
        num_runs = self._steps.num_inner_runs
        result = self._scaler.step(optimizer)
        self._scaler.update()
        self._is_unscaled = False
        has_updated = self._steps.num_inner_runs > num_runs
        if not has_updated:
            self._steps.skipped()
        return result, has_updated

    def _wrap_zero_grad(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def zero_grad(owner: Any, *args: Any, **kwargs: Any) -> None:
            if not self.is_pending:
                original(owner, *args, **kwargs)

        return zero_grad

    def _wrap_clip_norm(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_grad_norm_(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> Any:
            if self.is_pending:
                max_norm = float("inf")
            return original(parameters, max_norm, *args, **kwargs)

        return clip_grad_norm_

    def _wrap_clip_value(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_grad_value_(*args: Any, **kwargs: Any) -> None:
            if not self.is_pending:
                original(*args, **kwargs)

        return clip_grad_value_

    def _wrap_scheduler_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            if self.is_pending:
                self._held_schedulers[id(scheduler)] = scheduler
                return None
            return original(scheduler, *args, **kwargs)

        return step


def _scheduler_classes() -> list[Any]:
    """Every scheduler class of torch that has a `step` of its own."""
    base = torch.optim.lr_scheduler.LRScheduler
    classes, queue = [base], [base]
    while queue:
        below = queue.pop().__subclasses__()
        classes.extend(cls for cls in below if "step" in cls.__dict__ and cls not in classes)
        queue.extend(below)
    return classes
