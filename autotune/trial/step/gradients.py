"""Adds gradient accumulation and loss scaling to a script without code for them.

The script calls backward, clips, steps and zeroes once per micro-batch. With K micro-batches per step the first K-1
calls of `step` do nothing. Until the K-th call `zero_grad`, clipping and the script's own scaler leave the gradients
alone, and schedulers that are stepped per batch wait for the optimizer. A loss that is a mean over samples is divided
by K; a summed loss is not divided. Under fp16 the loss is scaled, and the gradients of the K-th micro-batch are
unscaled before any code reads them.
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
from autotune.trial.torch import torch_names
from autotune.trial.torch.patching import wrap

NUM_CHECKED = 8
"""Pending micro-batches whose gradients are compared before and after. A script that clears or clips gradients by hand
does so every time, so a few comparisons suffice."""


class _AllOptimizers:
    """Stands in for an optimizer towards the scaler: holds all parameters of the script and runs the due step.

    Gradients are unscaled before the script has chosen the optimizer to step.
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
    """Accumulates and scales gradients between backward and the parameters' update, for exactly one optimizer."""

    def __init__(self, steps: Steps, *, grad_accum_steps: int, reduction: LossReduction, scaled_on: str | None) -> None:
        self.are_changed_by_script = False
        """Whether the script cleared or changed pending gradients by code without a seam."""
        self.num_missing = 0
        """Micro-batches missing from the incomplete steps at the ends of epochs."""
        self._steps = steps
        self._accumulation = grad_accum_steps
        self._divides = reduction is LossReduction.MEAN
        self._scaled_on = scaled_on
        self._takes_share = grad_accum_steps > 1 and self._divides and scaled_on is None
        self._share: torch.Tensor | None = None
        self._all = _AllOptimizers(steps)
        self._num_pending = 0
        """Micro-batches since the last step; the current micro-batch counts from its backward on."""
        self._is_unscaled = False
        self._held_optimizer: torch.optim.Optimizer | None = None
        """The optimizer of the last step that was held back."""
        self._schedulers = HeldSchedulers(lambda: self.is_pending)
        self._clips: list[Callable[[], Any]] = []
        """The script's clipping calls on the pending gradients of the last micro-batch."""
        self._own_scaler: Any = None
        """The script's scaler, if the last step that was held back came through a scaler."""
        self._num_checked = 0
        self._norm: float | None = None

    @functools.cached_property
    def _scaler(self) -> Any:
        """Built at the first loss: a scaler asks the driver for devices, too early while the script only imports."""
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
        """Makes a step of the pending micro-batches, with their true number as the divisor, at the end of an epoch."""
        optimizer = self._held_optimizer
        if not self.is_pending or optimizer is None or self._steps.thread != threading.get_ident():
            # A loader read by another thread ends before the training of the last batches.
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
                # The script left the step out. Without `update` the scaler would never unscale again.
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
        """The gradient 1/K for a backward pass to start from, in place of a division of the loss by K."""
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
        """Unscales the gradients once per step, before clipping and all other readers of gradients."""
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
            # The script's norm is of incomplete gradients; at the step `clip_grad_norm_` computes the norm anew.
            clip = torch.nn.utils.clip_grad_norm_
            self._clips.append(functools.partial(clip, _listed(parameters), max_norm))

        return clip_grads_with_norm_


def _listed(parameters: Any) -> Any:
    """Parameters as a list, for more than one pass: some scripts pass a generator."""
    return parameters if isinstance(parameters, torch.Tensor) else list(parameters)


def gradient_norm(parameters: Iterable[torch.Tensor]) -> float | None:
    """The joint norm of all gradients of the parameters; None for infinite and undefined norms."""
    gradients = [parameter.grad.detach() for parameter in parameters if parameter.grad is not None]
    # A row may occur twice in a sparse gradient, as a word in a batch does; coalesce() adds the two up.
    dense = [gradient.coalesce().values() if gradient.is_sparse else gradient for gradient in gradients]
    norm = math.sqrt(sum(float(values.double().pow(2).sum()) for values in dense))
    return norm if math.isfinite(norm) else None


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Memory of an optimizer's state, such as the moments of Adam."""
    values = (value for state in optimizer.state.values() for value in state.values())
    return bytes_of(value for value in values if isinstance(value, torch.Tensor))


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """Memory of tensors on this rank, in bytes."""
    shares = map(torch_names.share_of, tensors)
    return sum(share.numel() * share.element_size() for share in shares)
