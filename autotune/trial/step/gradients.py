"""Gradient accumulation and loss scaling under a script that knows of neither.

The script calls backward, clips, steps and zeroes once per micro-batch. With K micro-batches per step the first K-1
calls of `step` do nothing, the gradients are left alone by `zero_grad`, by clipping and by the script's own scaler
until the K-th, and schedulers that are stepped per batch move with the optimizer. A loss that is a mean over its
samples is divided by K; a summed one is not. Under fp16 the loss is scaled, and gradients are unscaled before anybody
reads them at the K-th micro-batch.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch

from autotune.model.facts import LossReduction
from autotune.trial.step.schedulers import HeldSchedulers
from autotune.trial.step.steps import Steps
from autotune.trial.torch.patching import wrap

NUM_CHECKED = 8
"""Pending micro-batches whose gradients are compared before and after: a script that clears them by hand, or clips
them by hand, does so every time."""


class _AllOptimizers:
    """What the scaler takes for one optimizer: all parameters of the script's, and the step that is due.

    Gradients are unscaled before it is known which optimizer the script will step.
    """

    def __init__(self, steps: Steps) -> None:
        self.has_stepped = False
        self.due: Callable[[], Any] = lambda: None
        self._steps = steps

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [{"params": self._steps.parameters()}]

    def step(self) -> Any:
        self.has_stepped = True
        return self.due()


class Gradients:
    """The seam between backward and the parameters' update; for exactly one optimizer."""

    def __init__(self, steps: Steps, *, grad_accum_steps: int, reduction: LossReduction, scaled_on: str | None) -> None:
        self.are_changed_by_script = False
        """Whether gradients that were to wait were cleared or changed by code that no seam holds back."""
        self.num_missing = 0
        """Micro-batches that steps at the ends of epochs were short of."""
        self._steps = steps
        self._accumulation = grad_accum_steps
        self._divides = reduction is LossReduction.MEAN
        self._scaled_on = scaled_on
        self._takes_share = grad_accum_steps > 1 and self._divides and scaled_on is None
        self._share: torch.Tensor | None = None
        self._all = _AllOptimizers(steps)
        self._num_pending = 0
        """Micro-batches whose gradients wait for a step; the running one is counted from its backward on."""
        self._is_unscaled = False
        self._held_optimizer: torch.optim.Optimizer | None = None
        """The optimizer whose step was held back last."""
        self._schedulers = HeldSchedulers(lambda: self.is_pending)
        self._clips: list[Callable[[], Any]] = []
        """What the script did to the gradients of the last micro-batch while they were pending."""
        self._own_scaler: Any = None
        """The script's scaler, whose step was held back last."""
        self._num_checked = 0
        self._norm: float | None = None

    @functools.cached_property
    def _scaler(self) -> Any:
        """Made for the first loss: to make one asks CUDA whether it is there, too early for what only imports torch."""
        return torch.amp.GradScaler(self._scaled_on) if self._scaled_on is not None else None

    @property
    def is_pending(self) -> bool:
        """Whether micro-batches wait for their step."""
        return 0 < self._num_pending < self._accumulation

    def install(self) -> None:
        """Attaches to backward, step, zero_grad, clipping, schedulers and scalers."""
        wrap(torch.autograd, "backward", self._wrap_backward)
        self._steps.policy = self._step
        self._steps.expects_update = lambda: not self.is_pending
        if self._accumulation == 1:
            return
        for owner in (torch.optim.Optimizer, torch.nn.Module):
            wrap(owner, "zero_grad", self._wrap_held)
        for name in ("unscale_", "update"):
            wrap(torch.amp.GradScaler, name, self._wrap_held)
        wrap(torch.amp.GradScaler, "step", self._wrap_scaler_step)
        for module in (torch.nn.utils, torch.nn.utils.clip_grad):
            wrap(module, "clip_grad_norm_", self._wrap_clip_norm)
            wrap(module, "clip_grad_value_", self._wrap_clip_value)
        if hasattr(torch.nn.utils, "clip_grads_with_norm_"):
            wrap(torch.nn.utils, "clip_grads_with_norm_", self._wrap_clip_with_norm)
        self._schedulers.install()

    def epoch_ends(self) -> None:
        """Steps the micro-batches that do not fill a step, with their true count, before the script goes on."""
        optimizer = self._held_optimizer
        if not self.is_pending or optimizer is None or self._steps.thread != threading.get_ident():
            # A loader that is read in a thread of its own is at its end before the training is.
            return
        if self._divides:
            for parameter in self._steps.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(self._accumulation / self._num_pending)
        self.num_missing += self._accumulation - self._num_pending
        self._num_pending = self._accumulation
        self._unscale()
        if self._own_scaler is not None:
            self._own_scaler.unscale_(optimizer)
        for clip in self._clips:
            clip()
        if self._own_scaler is not None:
            self._own_scaler.step(optimizer)
            self._own_scaler.update()
        else:
            optimizer.step()
        self._schedulers.release()
        optimizer.zero_grad()

    # Backward ------------------------------------------------------------------------------------------------

    def _wrap_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            self._before_backward()
            if grad_tensors is None and self._takes_share and isinstance(tensors, torch.Tensor) and not tensors.dim():
                grad_tensors = self._share_for(tensors)
            else:
                tensors = self._scaled(tensors)
            original(tensors, grad_tensors, *args, **kwargs)
            self._after_backward()

        return backward

    def _before_backward(self) -> None:
        if self._num_pending >= self._accumulation:
            self._num_pending = 0
            self._schedulers.release()
            if self._is_unscaled:
                # The script left the step out. Unless the scaler is told, it never unscales again.
                self._scaler.update()
                self._is_unscaled = False
        elif self._norm is not None:
            self.are_changed_by_script |= self._norm != gradient_norm(self._steps.parameters())
        self._norm = self._own_scaler = self._held_optimizer = None
        self._clips.clear()
        self._num_pending += 1

    def _after_backward(self) -> None:
        if self._num_pending == self._accumulation:
            self._unscale()
        elif self._num_checked < NUM_CHECKED:
            self._num_checked += 1
            self._norm = gradient_norm(self._steps.parameters())

    def _share_for(self, loss: torch.Tensor) -> torch.Tensor:
        """What the backward pass of a loss begins with, instead of with one: the loss need not be divided then."""
        if self._share is None or self._share.dtype != loss.dtype or self._share.device != loss.device:
            self._share = torch.ones_like(loss, requires_grad=False) / self._accumulation
        return self._share

    def _scaled(self, tensors: Any) -> Any:
        if not isinstance(tensors, torch.Tensor):
            return tuple(self._scaled(tensor) for tensor in tensors)
        if self._accumulation > 1 and self._divides:
            tensors = tensors / self._accumulation
        return self._scaler.scale(tensors) if self._scaler is not None else tensors

    def _unscale(self) -> None:
        """Before clipping and all other readers of gradients, once per step."""
        if self._scaler is not None and not self._is_unscaled:
            self._scaler.unscale_(self._all)
            self._is_unscaled = True

    # Step ----------------------------------------------------------------------------------------------------

    def _step(self, optimizer: torch.optim.Optimizer, call: Callable[[], Any]) -> tuple[Any, bool]:
        if self._num_pending < self._accumulation:
            self._held_optimizer = optimizer
            return None, False
        if self._scaler is None:
            return call(), True
        self._all.due, self._all.has_stepped = call, False
        result = self._scaler.step(self._all)
        self._scaler.update()
        self._is_unscaled = False
        if not self._all.has_stepped:
            self._steps.skipped()
        return result, self._all.has_stepped

    def _wrap_held(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def held(owner: Any, *args: Any, **kwargs: Any) -> Any:
            return None if self.is_pending else original(owner, *args, **kwargs)

        return held

    def _wrap_scaler_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if self.is_pending:
                self._own_scaler, self._held_optimizer = scaler, optimizer
                return None
            return original(scaler, optimizer, *args, **kwargs)

        return step

    # Clipping ------------------------------------------------------------------------------------------------

    def _wrap_clip_norm(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_grad_norm_(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> Any:
            if not self.is_pending:
                return original(parameters, max_norm, *args, **kwargs)
            parameters = _listed(parameters)
            self._clips.append(functools.partial(original, parameters, max_norm, *args, **kwargs))
            # The norm so far, with nothing clipped.
            return original(parameters, float("inf"), *args, **kwargs)

        return clip_grad_norm_

    def _wrap_clip_value(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_grad_value_(parameters: Any, *args: Any, **kwargs: Any) -> None:
            if not self.is_pending:
                original(parameters, *args, **kwargs)
                return
            self._clips.append(functools.partial(original, _listed(parameters), *args, **kwargs))

        return clip_grad_value_

    def _wrap_clip_with_norm(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_grads_with_norm_(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> None:
            if not self.is_pending:
                original(parameters, max_norm, *args, **kwargs)
                return
            # The norm that the script has is not the one that will be clipped.
            clip = torch.nn.utils.clip_grad_norm_
            self._clips.append(functools.partial(clip, _listed(parameters), max_norm))

        return clip_grads_with_norm_


def _listed(parameters: Any) -> Any:
    """Parameters that can be gone through more than once: scripts give generators."""
    return parameters if isinstance(parameters, torch.Tensor) else list(parameters)


def gradient_norm(parameters: Iterable[torch.Tensor]) -> float | None:
    """Norm of all dense gradients of these parameters together; None where it is not finite."""
    squares = [
        float(parameter.grad.detach().double().pow(2).sum())
        for parameter in parameters
        if parameter.grad is not None and not parameter.grad.is_sparse
    ]
    norm = math.sqrt(sum(squares))
    return norm if math.isfinite(norm) else None
