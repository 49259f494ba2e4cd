"""Holds schedulers and averages of the weights back while micro-batches are pending, and keeps rates past the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel

from autotune.trial.step.class_families import Make, wrap_family

PAST_THE_END = (ValueError, LookupError, ArithmeticError)
"""Errors raised by schedules beyond their end, such as OneCycleLR and functions that index a table."""


def wrap_steps(make: Make) -> None:
    """Replaces `step` of every scheduler class by `make(step)`: torch's classes now, all others when first built."""
    wrap_family(torch.optim.lr_scheduler.LRScheduler, ["step"], make)


def keep_last_rate() -> None:
    """Keeps the last learning rates when a trial runs past the end of the script's schedule.

    A trial may take more steps than the script would. A schedule past its end raises an error, or gives a negative
    number, not a number, or a complex number (the root of a negative number). A schedule that fails before its first
    step is broken, and the error is raised as ever. Never to be used in real training.
    """
    wrap_steps(_keeping_last_rate)


def _keeping_last_rate(original: Callable[..., Any]) -> Callable[..., Any]:
    def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        groups = scheduler.optimizer.param_groups if hasattr(scheduler, "optimizer") else []
        rates = [group["lr"] for group in groups]
        try:
            result = original(scheduler, *args, **kwargs)
        except PAST_THE_END:
            if not _has_moved(scheduler):
                raise
            return None
        for group, rate in zip(groups, rates, strict=True):
            if not _is_rate(group["lr"]) and _has_moved(scheduler):
                group["lr"] = rate
        return result

    return step


def _has_moved(scheduler: Any) -> bool:
    return bool(getattr(scheduler, "last_epoch", 0) > 1)


def _is_rate(value: Any) -> bool:
    """Whether a value is a learning rate; a tensor always passes, since to read a tensor may wait for the device."""
    return isinstance(value, torch.Tensor) or (isinstance(value, Real) and 0 <= float(value) < math.inf)


class HeldSchedulers:
    """Holds back the steps of schedulers, and of averaged weights, while micro-batches are pending.

    A scheduler stepped per batch is called again with the optimizer's step, and moves at this call. A scheduler without
    a second call was stepped for another reason, such as an epoch left early, and moves after the optimizer's step. The
    same holds for torch's AveragedModel: updated per micro-batch, an average with the decay d would have d ** K.

    Args:
        is_pending: Whether micro-batches wait for their step now.
    """

    def __init__(self, is_pending: Callable[[], bool]) -> None:
        self._is_pending = is_pending
        self._held: dict[int, Callable[[], Any]] = {}

    def install(self) -> None:
        """Attaches to all schedulers, and to torch's averaged models."""
        wrap_steps(partial(self._wrap, "step"))
        wrap_family(AveragedModel, ["update_parameters"], partial(self._wrap, "update_parameters"))

    def release(self) -> None:
        """Makes all held calls without a second call; to be called when nothing is pending."""
        held, self._held = self._held, {}
        for step in held.values():
            step()

    def _wrap(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_pending():
                self._held[id(scheduler)] = partial(getattr(scheduler, name), *args, **kwargs)
                return None
            self._held.pop(id(scheduler), None)
            return original(scheduler, *args, **kwargs)

        return step
