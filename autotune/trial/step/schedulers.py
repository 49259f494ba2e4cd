"""Learning-rate schedulers of the script: held back while micro-batches are pending, kept alive past their end."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import torch

from autotune.trial.torch.patching import wrap

PAST_THE_END = (ValueError, LookupError, ArithmeticError)
"""What schedules raise when they are asked beyond their end: OneCycleLR, and functions that index a table."""

Make = Callable[[Callable[..., Any]], Callable[..., Any]]


def wrap_steps(make: Make) -> None:
    """Replaces `step` of every scheduler class by `make(step)`: torch's now, the script's own when first built."""
    seen: set[Any] = set()

    def see(cls: Any) -> None:
        if cls not in seen:
            seen.add(cls)
            if "step" in vars(cls):
                wrap(cls, "step", make)

    def wrap_init(original: Callable[..., Any]) -> Callable[..., Any]:
        def init(scheduler: Any, *args: Any, **kwargs: Any) -> None:
            for cls in type(scheduler).__mro__:
                if issubclass(cls, base):
                    see(cls)
            original(scheduler, *args, **kwargs)

        return init

    base = torch.optim.lr_scheduler.LRScheduler
    queue: list[Any] = [base]
    while queue:
        cls = queue.pop()
        see(cls)
        queue.extend(cls.__subclasses__())
    wrap(base, "__init__", wrap_init)


def keep_last_rate() -> None:
    """Lets a trial go on past the end of the script's schedule: the rates stay what they were.

    A trial may take more steps than the script would. A schedule that then raises has ended, or gives what is no rate:
    below zero, not a number, or complex, as a root of what falls below zero is. One that does so before it has made a
    step is broken, and goes on as ever. Never to be used in real training.
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
    """Whether an optimizer can go on with it; of a tensor, which may be on a device, nobody asks."""
    return isinstance(value, torch.Tensor) or (isinstance(value, Real) and 0 <= float(value) < math.inf)


class HeldSchedulers:
    """Schedulers whose steps wait while micro-batches are pending.

    One that is stepped per batch comes by again when its step is taken, and moves then. One that does not come by again
    was stepped for another reason, an epoch that the script left early for instance: it moves once the step is done.

    Args:
        is_pending: Whether micro-batches wait for their step now.
    """

    def __init__(self, is_pending: Callable[[], bool]) -> None:
        self._is_pending = is_pending
        self._held: dict[int, Callable[[], Any]] = {}

    def install(self) -> None:
        """Attaches to all schedulers."""
        wrap_steps(self._wrap)

    def release(self) -> None:
        """Steps those that were held and have not come by again; to be called when nothing is pending."""
        held, self._held = self._held, {}
        for step in held.values():
            step()

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_pending():
                self._held[id(scheduler)] = functools.partial(scheduler.step, *args, **kwargs)
                return None
            self._held.pop(id(scheduler), None)
            return original(scheduler, *args, **kwargs)

        return step
