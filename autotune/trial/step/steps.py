"""Backward passes and optimizer steps of this process, seen at torch's own functions."""

from __future__ import annotations

import functools
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from autotune.trial.torch.compiler_exclusion import keep_out_compiler
from autotune.trial.torch.patching import wrap

StepPolicy = Callable[[torch.optim.Optimizer, Callable[[], Any]], tuple[Any, bool]]
"""Decides about one call of `step`: runs it or not; gives back its result and whether parameters were updated."""

MAX_OTHER_STEPS = 128
"""Steps of another optimizer in a row after which the one that is counted is taken to have had its time, as that of a
head that is trained before all else is: scripts with several make no hundred of one's for each of another's."""


class Steps:
    """Counts of what really happened to gradients and parameters.

    A step counts when the first optimizer that ever stepped updates its parameters; scripts with several optimizers
    step them in turn, once per iteration each. When that is gone, or steps no more, the next one takes its place.
    """

    def __init__(self) -> None:
        self.num_backwards = 0
        self.thread = 0
        """The one that ran the last backward pass that listeners were told of."""
        self.num_steps = 0
        """Optimizer steps that updated parameters."""
        self.num_skipped = 0
        """Steps that were due and did not update: gradients had overflowed."""
        self.num_updates = 0
        """Steps that were due: done or skipped."""
        self.is_by_hand = False
        """The script updates its parameters without a torch optimizer: each backward pass is taken for a step."""
        self.policy: StepPolicy | None = None
        """None runs every call of `step`."""
        self.expects_update: Callable[[], bool] = lambda: True
        """Whether a step of the script's own scaler is due now, so that one that does not come was skipped."""
        self.used_closure = False
        self.on_backward: list[Callable[[torch.Tensor | None], None]] = []
        """Told of every backward pass and its loss, but of those that they let pass."""
        self._listens_at = 0
        """The number of backward passes at which they are told again."""
        self.on_step: list[Callable[[torch.optim.Optimizer | None], None]] = []
        """Called after every step that updated parameters, of any optimizer; without one where it is by hand."""
        self._depth = 0
        """1 within a call of `step`: what that calls itself is a part of it."""
        self._num_calls = 0
        self._is_watching = False
        self._built: list[weakref.ref[torch.optim.Optimizer]] = []
        self._seen: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._num_of_others, self._num_updates_before = Counter[int](), 0
        """Steps of each other optimizer since the counted one's last, and how many of its own there were then."""
        self._primary: Callable[[], torch.optim.Optimizer | None] = lambda: None
        """Gives the optimizer whose steps are counted, as a weak reference does."""

    @property
    def has_optimizer(self) -> bool:
        """Whether the script holds a torch optimizer."""
        return bool(self._alive())

    @property
    def num_optimizers(self) -> int:
        """Optimizers that have stepped, and those that wait for their turn with parameters of their own."""
        stepped = list(self._seen)
        if not stepped:
            return 0
        known = {id(parameter) for optimizer in stepped for parameter in parameters_of(optimizer)}
        waiting = [optimizer for optimizer in self._alive() if optimizer not in self._seen]
        return len(stepped) + sum(all(id(p) not in known for p in parameters_of(other)) for other in waiting)

    @property
    def primary(self) -> torch.optim.Optimizer | None:
        """The optimizer whose steps are counted."""
        return self._primary()

    def parameters(self) -> list[torch.Tensor]:
        """Every parameter that an optimizer of the script updates, once."""
        return list({id(p): p for optimizer in self._alive() for p in parameters_of(optimizer)}.values())

    def skipped(self) -> None:
        """Notes that a due step did not update the parameters."""
        self.num_skipped += 1
        self.num_updates += 1

    def stepped(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Notes an update of parameters, by an optimizer or by hand."""
        primary = self._primary()
        if optimizer is not primary and optimizer is not None:
            self._seen.add(optimizer)
            if primary is None or self._is_over(optimizer):
                primary = optimizer
                self._primary = weakref.ref(optimizer)
        if optimizer is primary:
            self.num_steps += 1
            self.num_updates += 1
        for listener in self.on_step:
            listener(optimizer)

    def _is_over(self, other: torch.optim.Optimizer) -> bool:
        """Whether the counted optimizer steps no more, asked at each step of another; its steps since count then."""
        if self._num_updates_before != self.num_updates:
            self._num_updates_before = self.num_updates
            self._num_of_others.clear()
        num_before = self._num_of_others[id(other)]
        self._num_of_others[id(other)] += 1
        if num_before < MAX_OTHER_STEPS:
            return False
        self.num_steps += num_before
        self.num_updates += num_before
        return True

    def let_pass(self, num_backwards: int) -> None:
        """Tells the listeners of `on_backward` of the one of that number from now on, and of none before."""
        if not self.is_by_hand:
            self._listens_at = self.num_backwards + num_backwards

    def forget(self, listener: Callable[[torch.optim.Optimizer | None], None]) -> None:
        """Calls a listener of `on_step` no more: on the path of a step there is only what has something to do."""
        self.on_step = [other for other in self.on_step if other != listener]

    def watch_optimizers(self) -> None:
        """Attaches to `step` of every optimizer that is built from now on; once."""
        if not self._is_watching:
            self._is_watching = True
            wrap(torch.optim.Optimizer, "__init__", self._wrap_init)

    def install(self) -> None:
        """Attaches to backward, to the optimizers, and to the script's scaler."""
        wrap(torch.autograd, "backward", self._wrap_backward)
        self.watch_optimizers()
        wrap(torch.amp.GradScaler, "step", self._wrap_scaler_step)
        keep_out_compiler()

    def _alive(self) -> list[torch.optim.Optimizer]:
        return [optimizer for optimizer in (built() for built in self._built) if optimizer is not None]

    def _wrap_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(
            tensors: Any,
            grad_tensors: Any = None,
            retain_graph: Any = None,
            create_graph: Any = False,
            grad_variables: Any = None,
            inputs: Any = None,
            **later: Any,
        ) -> Any:
            # By name: what `*args` and `**kwargs` hold is packed and unpacked, in every step.
            if later:  # what torch has learned since
                original(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs, **later)
            else:
                original(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
            self.num_backwards += 1
            if self.num_backwards >= self._listens_at:
                self.thread = get_ident()
                loss = tensors if isinstance(tensors, torch.Tensor) else None
                for listener in self.on_backward:
                    listener(loss)
                if self.is_by_hand:
                    self.stepped(None)

        return backward

    def _wrap_init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def init(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            self._built.append(weakref.ref(optimizer))
            cls: Any = type(optimizer)
            if not getattr(cls.step, "_autotune_sees", False):
                wrap(cls, "step", self._wrap_step)
                cls.step._autotune_sees = True

        return init

    def _wrap_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            self._num_calls += 1
            if self._depth:
                return original(optimizer, *args, **kwargs)
            if args or kwargs:
                self.used_closure |= (args[0] if args else kwargs.get("closure")) is not None
            self._depth = 1
            try:
                if self.policy is None:
                    result = original(optimizer, *args, **kwargs)
                else:
                    call = functools.partial(original, optimizer, *args, **kwargs)
                    result, has_updated = self.policy(optimizer, call)
                    if not has_updated:
                        return result
            finally:
                self._depth = 0
            self.stepped(optimizer)
            return result

        return step

    def _wrap_scaler_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            num_calls = self._num_calls
            result = original(scaler, optimizer, *args, **kwargs)
            is_scripts = self._depth == 0
            if is_scripts and self._num_calls == num_calls and optimizer is self.primary and self.expects_update():
                self.skipped()
            return result

        return step


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterable[torch.Tensor]:
    """All parameters that an optimizer updates; those of lazy modules that were never called have no shape yet."""
    return (p for group in optimizer.param_groups for p in group["params"] if not is_lazy(p))
