"""From micro-batches to optimizer steps, for scripts that call `Config.backward`.

Imported when the first loss arrives, because it needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from autotune.errors import ConfigError


class Scheduler(Protocol):
    """A scheduler of the learning rate, with one call per optimizer step."""

    def step(self) -> Any:
        """Moves the learning rate on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepPlan:
    """The user's wishes for the next optimizer step."""

    optimizer: torch.optim.Optimizer
    clip_norm: float | None
    """Greatest norm of the whole gradient; None = no clipping."""
    scheduler: Scheduler | None
    is_mean: bool
    """True for a loss that is the mean over the samples of a micro-batch, False for a sum."""


class Accumulation:
    """The gradients of one optimizer on their way to a step.

    Args:
        num_micro_batches: Micro-batches per step.
        is_scaled: The loss is scaled against underflow of float16, and steps with an overflow are skipped.
        on_step: Called after each due step, with the number of micro-batches.
    """

    def __init__(self, num_micro_batches: int, *, is_scaled: bool, on_step: Callable[[int], None]) -> None:
        self._num_micro_batches = num_micro_batches
        self._is_scaled = is_scaled
        self._on_step = on_step
        self._num_pending = 0
        self._plan: StepPlan | None = None
        self._scaler: torch.amp.GradScaler | None = None

    def backward(self, loss: torch.Tensor, plan: StepPlan) -> bool:
        """Adds the gradients of one micro-batch, and steps after the last of a step; True when parameters changed.

        Raises:
            ConfigError: The optimizer is not the one of the calls before, or gradients were zeroed in between.
        """
        self._check(plan)
        self._plan = plan
        share = loss / self._num_micro_batches if plan.is_mean and self._num_micro_batches > 1 else loss
        if self._is_scaled:
            if self._scaler is None:
                self._scaler = torch.amp.GradScaler(loss.device.type)
            share = self._scaler.scale(share)
        share.backward()  # type: ignore[no-untyped-call]
        self._num_pending += 1
        return self._num_pending == self._num_micro_batches and self._step(plan)

    def flush(self) -> None:
        """Steps the micro-batches of an unfinished step, with their true count; does nothing without micro-batches."""
        if self._num_pending and self._plan is not None:
            self._step(self._plan)

    def _check(self, plan: StepPlan) -> None:
        if self._plan is not None and self._plan.optimizer is not plan.optimizer:
            raise ConfigError(
                "cfg.backward was called with a second optimizer, and one's gradients would reach the other's step.",
                "Call autotune.load once for each optimizer that trains apart.",
            )
        if self._num_pending and all(parameter.grad is None for parameter in _parameters(plan.optimizer)):
            raise ConfigError(
                f"The gradients of {self._num_pending} micro-batches were zeroed before their step.",
                "Leave zero_grad to cfg.backward.",
            )

    def _step(self, plan: StepPlan) -> bool:
        """Unscales, corrects for the true count, clips, steps, zeroes."""
        num_pending, self._num_pending = self._num_pending, 0
        if self._scaler is not None:
            self._scaler.unscale_(plan.optimizer)
        if plan.is_mean and num_pending < self._num_micro_batches:
            for parameter in _parameters(plan.optimizer):
                if parameter.grad is not None:
                    parameter.grad.mul_(self._num_micro_batches / num_pending)
        if plan.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(_parameters(plan.optimizer), plan.clip_norm)
        has_stepped = self._update(plan.optimizer)
        if has_stepped and plan.scheduler is not None:
            plan.scheduler.step()
        plan.optimizer.zero_grad(set_to_none=True)
        self._on_step(num_pending)
        return has_stepped

    def _update(self, optimizer: torch.optim.Optimizer) -> bool:
        if self._scaler is None:
            optimizer.step()
            return True
        # torch has no public name for a skipped step, but the scale falls exactly when a step is skipped.
        scale = self._scaler.get_scale()
        self._scaler.step(optimizer)
        self._scaler.update()
        return self._scaler.get_scale() >= scale


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]
