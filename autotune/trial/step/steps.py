"""Counts backward passes and optimizer steps of this process at torch's own functions."""

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
from autotune.trial.torch.torch_names import is_in_backward

StepPolicy = Callable[[torch.optim.Optimizer, Callable[[], Any]], tuple[Any, bool]]
"""Runs one call of `step` or leaves the call out; returns the call's result and whether parameters were updated."""

MAX_OTHER_STEPS = 128
"""Steps of another optimizer in a row after which the other optimizer is counted instead, as when a script trains a
head first. Scripts with alternating optimizers make fewer than 100 steps of the first per step of the second."""


class Steps:
    """Counts backward passes and real updates of parameters.

    The steps of the first optimizer that steps are counted: scripts with several optimizers step each of them once per
    iteration. When the counted optimizer is gone, or steps no more, the next stepping optimizer is counted instead.
    """

    def __init__(self) -> None:
        self.num_backwards = 0
        self.thread = 0
        """The thread of the last backward pass that was reported to listeners."""
        self.num_steps = 0
        """Optimizer steps that updated parameters."""
        self.num_skipped = 0
        """Due steps without an update, after an overflow of the gradients."""
        self.num_updates = 0
        """Due steps, done or skipped."""
        self.is_by_hand = False
        """True when the script updates parameters without a torch optimizer; each backward pass counts as a step."""
        self.prepare: list[Callable[[torch.optim.Optimizer], None]] = []
        """Functions to run once per optimizer, before its first step."""
        self._prepared: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self.policy: StepPolicy | None = None
        """None runs every call of `step`."""
        self.expects_update: Callable[[], bool] = lambda: True
        """Whether the script's own scaler must step now; a missing step then counts as skipped."""
        self.used_closure = False
        self.counts_evaluations: Callable[[], bool] | None = None
        """Whether each evaluation of a closure counts as a step, asked within a step at the second evaluation; None
        counts the calls of `step`. Optimizers such as LBFGS evaluate 20 times in a step, which may take minutes."""
        self.has_counted_evaluations = False
        """True once an evaluation has counted as a step."""
        self.on_backward: list[Callable[[torch.Tensor | None], None]] = []
        """Called with the loss after each backward pass, except the passes skipped by `let_pass`."""
        self._listens_at = 0
        """Number of the next backward pass for the listeners."""
        self.on_step: list[Callable[[torch.optim.Optimizer | None], None]] = []
        """Called with the optimizer after each update of parameters; with None after an update by hand."""
        self._depth = 0
        """1 within a call of `step`: calls of `step` inside are parts of the same step."""
        self._num_calls = 0
        self._is_watching = False
        self._built: list[weakref.ref[torch.optim.Optimizer]] = []
        self.on_built: list[Callable[[torch.optim.Optimizer], None]] = []
        """Called with each optimizer after its construction."""
        self._stepped: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._num_of_others, self._num_updates_before = Counter[int](), 0
        """Steps of each other optimizer since the last counted step, and the number of due steps at that time."""
        self._primary: Callable[[], torch.optim.Optimizer | None] = lambda: None
        """A weak reference to the optimizer whose steps are counted."""

    @property
    def has_optimizer(self) -> bool:
        """Whether the script holds a torch optimizer."""
        return bool(self._alive())

    @property
    def num_optimizers(self) -> int:
        """Number of optimizers that have stepped, plus waiting optimizers without parameters of a stepped optimizer."""
        stepped = list(self._stepped)
        if not stepped:
            return 0
        known = {id(parameter) for optimizer in stepped for parameter in parameters_of(optimizer)}
        waiting = [optimizer for optimizer in self._alive() if optimizer not in self._stepped]
        return len(stepped) + sum(all(id(p) not in known for p in parameters_of(other)) for other in waiting)

    @property
    def stepping(self) -> tuple[torch.optim.Optimizer, ...]:
        """The optimizers that have stepped, without optimizers that the script has dropped."""
        return tuple(self._stepped)

    @property
    def primary(self) -> torch.optim.Optimizer | None:
        """The optimizer whose steps are counted."""
        return self._primary()

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The script's optimizers."""
        return self._alive()

    def parameters(self) -> list[torch.Tensor]:
        """All parameters of the script's optimizers, each once."""
        return list({id(p): p for optimizer in self._alive() for p in parameters_of(optimizer)}.values())

    def skipped(self) -> None:
        """Notes that a due step did not update the parameters."""
        self.num_skipped += 1
        self.num_updates += 1

    def stepped(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Notes an update of parameters by an optimizer, or by hand with None."""
        primary = self._primary()
        if optimizer is not primary and optimizer is not None:
            self._stepped.add(optimizer)
            if primary is None or self._is_over(optimizer):
                primary = optimizer
                self._primary = weakref.ref(optimizer)
        if optimizer is primary:
            self.num_steps += 1
            self.num_updates += 1
        for listener in self.on_step:
            listener(optimizer)

    def _is_over(self, other: torch.optim.Optimizer) -> bool:
        """Whether the counted optimizer steps no more, judged at each step of another optimizer.

        The other optimizer's steps since the last counted step are then added to the counts.
        """
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
        """Skips the listeners of `on_backward` until the `num_backwards`-th backward pass from now on."""
        if not self.is_by_hand:
            self._listens_at = self.num_backwards + num_backwards

    def forget(self, listener: Callable[[torch.optim.Optimizer | None], None]) -> None:
        """Removes a listener of `on_step`, to keep the path of a step short."""
        self.on_step = [other for other in self.on_step if other != listener]

    def begin_anew(self) -> None:
        """Forgets all counts and listeners, for another measurement; the known optimizers stay known."""
        self.num_backwards = self.num_steps = self.num_skipped = self.num_updates = 0
        self._listens_at = self._num_updates_before = 0
        self._num_of_others.clear()
        self.policy, self.expects_update = None, lambda: True
        self.on_backward, self.on_step, self.on_built, self.prepare = [], [], [], []
        self._prepared.clear()

    def watch_optimizers(self) -> None:
        """Attaches to `step` of every optimizer built from now on; a second call does nothing."""
        if not self._is_watching:
            self._is_watching = True
            wrap(torch.optim.Optimizer, "__init__", self._wrap_init)

    def install(self) -> None:
        """Attaches to backward, to the optimizers, and to the script's scaler."""
        wrap(torch.autograd, "backward", self._wrap_backward)
        self.watch_optimizers()
        wrap(torch.amp.GradScaler, "step", self._wrap_scaler_step)
        wrap(torch.amp.GradScaler, "scale", _wrap_scale)
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
            # Arguments by name: `*args` and `**kwargs` would be packed and unpacked in every step.
            is_inner = is_in_backward()  # A reentrant checkpoint runs the backward pass of its block by itself.
            if later:  # arguments of a later torch
                original(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs, **later)
            else:
                original(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
            if is_inner:
                return
            self.num_backwards += 1
            if self.num_backwards >= self._listens_at:
                self.thread = get_ident()
                loss = getattr(tensors, "_autotune_unscaled", tensors) if isinstance(tensors, torch.Tensor) else None
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
            for listener in self.on_built:
                listener(optimizer)

        return init

    def _wrap_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            self._num_calls += 1
            if self._depth:
                return original(optimizer, *args, **kwargs)
            if args or kwargs:
                closure = args[0] if args else kwargs.get("closure")
                self.used_closure |= closure is not None
                if closure is not None and self.counts_evaluations is not None:
                    counted = self._counted(optimizer, closure)
                    args, kwargs = ((counted, *args[1:]), kwargs) if args else ((), {**kwargs, "closure": counted})
            if self.prepare and optimizer not in self._prepared:
                self._prepare(optimizer)
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

    def _counted(self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any]) -> Callable[[], Any]:
        """The closure of one step, with an update noted at each evaluation but the first: the step ends the last."""
        is_first = True

        def evaluate() -> Any:
            nonlocal is_first
            if not is_first and self.counts_evaluations is not None and self.counts_evaluations():
                self.has_counted_evaluations = True
                self.stepped(optimizer)
            is_first = False
            return closure()

        return evaluate

    def _prepare(self, optimizer: torch.optim.Optimizer) -> None:
        self._prepared.add(optimizer)
        for action in self.prepare:
            action(optimizer)

    def _wrap_scaler_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            num_calls = self._num_calls
            result = original(scaler, optimizer, *args, **kwargs)
            is_scripts = self._depth == 0
            if is_scripts and self._num_calls == num_calls and optimizer is self.primary and self.expects_update():
                self.skipped()
            return result

        return step


def _wrap_scale(original: Callable[..., Any]) -> Callable[..., Any]:
    def scale(scaler: Any, outputs: Any) -> Any:
        """Scales, and keeps the script's loss beside the scaled loss: losses of two trials differ by their scale."""
        scaled = original(scaler, outputs)
        if isinstance(scaled, torch.Tensor) and scaled is not outputs:
            scaled._autotune_unscaled = outputs  # type: ignore[attr-defined]
        return scaled

    return scale


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterable[torch.Tensor]:
    """All parameters of an optimizer, without the parameters of uncalled lazy modules, which have no shape yet."""
    return (p for group in optimizer.param_groups for p in group["params"] if not is_lazy(p))
