"""Backward passes and optimizer steps of this process, seen at torch's own functions."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from autotune.trial.patching import wrap

StepPolicy = Callable[[torch.optim.Optimizer, Callable[[], Any]], tuple[Any, bool]]
"""Decides about one call of `step`: runs it or not; gives back its result and whether parameters were updated."""


class Steps:
    """Counts of what really happened to gradients and parameters.

    A step counts when the first optimizer that ever stepped updates its parameters; scripts with several optimizers
    step them in turn, once per iteration each.
    """

    def __init__(self) -> None:
        self.num_backwards = 0
        self.num_steps = 0
        """Optimizer steps that updated parameters."""
        self.num_skipped = 0
        """Steps that were due and did not update: gradients had overflowed."""
        self.policy: StepPolicy = _run
        self.used_closure = False
        self.num_inner_runs = 0
        """Calls of `step` from inside a policy: how a policy knows that a scaler let the update through."""
        self.on_backward: list[Callable[[torch.Tensor | None], None]] = []
        self.on_step: list[Callable[[torch.optim.Optimizer], None]] = []
        """Called after every step that updated parameters, of any optimizer."""
        self._depth = 0
        self._built: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._seen: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._primary: weakref.ref[torch.optim.Optimizer] | None = None

    @property
    def optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """Optimizers that have stepped and still exist."""
        return tuple(self._seen)

    @property
    def primary(self) -> torch.optim.Optimizer | None:
        """The optimizer whose steps are counted."""
        return self._primary() if self._primary is not None else None

    @property
    def only_optimizer(self) -> torch.optim.Optimizer | None:
        """The optimizer of a script that has exactly one."""
        return next(iter(self._built)) if len(self._built) == 1 else None

    def skipped(self) -> None:
        """Notes that a due step did not update the parameters."""
        self.num_skipped += 1

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """Notes that an optimizer updated its parameters."""
        self._seen.add(optimizer)
        if self._primary is None:
            self._primary = weakref.ref(optimizer)
        if self._primary() is optimizer:
            self.num_steps += 1
        for listener in self.on_step:
            listener(optimizer)

    def install(self) -> None:
        """Attaches to `torch.autograd.backward` and to `step` of every optimizer that is built from now on."""
        wrap(torch.autograd, "backward", self._wrap_backward)
        wrap(torch.optim.Optimizer, "__init__", self._wrap_init)

    def _wrap_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(tensors, *args, **kwargs)
            self.num_backwards += 1
            if self.on_backward:
                loss = tensors if isinstance(tensors, torch.Tensor) else None
                for listener in self.on_backward:
                    listener(loss)
            return result

        return backward

    def _wrap_init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def init(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            self._built.add(optimizer)
            cls: Any = type(optimizer)
            if not getattr(cls.step, "_autotune_sees", False):
                wrap(cls, "step", self._wrap_step)
                cls.step._autotune_sees = True

        return init

    def _wrap_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            if self._depth:
                self.num_inner_runs += 1
                return original(optimizer, *args, **kwargs)
            if (args and args[0] is not None) or kwargs.get("closure") is not None:
                self.used_closure = True
            self._depth += 1
            try:
                result, has_updated = self.policy(optimizer, lambda: original(optimizer, *args, **kwargs))
            finally:
                self._depth -= 1
            if has_updated:
                self.stepped(optimizer)
            return result

        return step


def _run(optimizer: torch.optim.Optimizer, call: Callable[[], Any]) -> tuple[Any, bool]:
    """The script's own way: every call of `step` is a step."""
    return call(), True
