"""Finds the root modules: the modules that the script itself calls in training, at their first call in grad mode."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from autotune.trial.torch import torch_names
from autotune.trial.torch.patching import wrap

MOST_LOOKS = 4
"""Most calls of a root to count as the first: a script may call the model at length before training."""


class Roots:
    """Finds root modules, prepares each root once, and runs an action before each call of a root.

    `nn.Module.__call__` is wrapped during the search only. If the script compiles, the plain method is back within the
    call of a root: the compiler would build a graph for the wrapped method, and the same graph again when the search
    ends. Putting the method back clears Python's caches for all classes of modules, and costs a call 0.05 to 0.7 ms.
    After the search each root carries a small wrapper, and the path of all inner modules is free.
    """

    def __init__(self) -> None:
        self.prepare: list[Callable[[torch.nn.Module], None]] = []
        """Functions to run once per root, before the root's first call."""
        self.before_call: list[Callable[[], None]] = []
        """Functions to run before every call of a root in grad mode."""
        self.on_any_call: Callable[[bool], None] | None = None
        """Called before each call of a module during the search, with True when gradients are switched on. Calls within
        a root's call in grad mode are left out, since a model may switch gradients off for a part of its work."""
        self.on_inputs: list[Callable[[Iterable[Any]], None]] = []
        """Functions to run on the arguments of every call of a root in grad mode."""
        self.convert_inputs: Callable[[Any], Any] | None = None
        """Applied to every argument of a root's call."""
        self.around_first: list[Callable[[torch.nn.Module], AbstractContextManager[object]]] = []
        """Functions from a root to a context for the root's first call."""
        self.around_again: Callable[[], AbstractContextManager[object]] | None = None
        """Gives the context for a call of a root within a backward pass, where a checkpoint runs the root again."""
        self.on_first_inputs: Callable[[Any], None] | None = None
        """Called with all arguments of the first call of each root."""
        self.is_before_training: Callable[[], bool] | None = None
        """Whether the script has not trained yet. Until then a later call of a root counts as the first call too: a
        script may look at the shape of an output before it trains on batches of another size."""
        self.compiles: Callable[[], bool] = lambda: False
        """Whether the script runs torch's compiler itself."""
        self.stops_at_first = False
        """Ends the search at the first root when True: a compiler will trace the calls of the inner modules."""
        self.num_found = 0
        """Roots found so far, with roots that the script has dropped."""
        self._modules: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._num_looks: weakref.WeakKeyDictionary[torch.nn.Module, int] = weakref.WeakKeyDictionary()
        """Calls of each root that counted as the first."""
        self._is_inside = False
        self._restore: Callable[[], None] | None = None
        self._wrapper: Any = None
        """The wrapped `nn.Module.__call__`."""
        self._before: weakref.WeakKeyDictionary[torch.nn.Module, tuple[Any, Any]] = weakref.WeakKeyDictionary()
        """For each wrapped root, the content of the slot before all changes, and a function that gives the content
        after, while it lives; without a slot, None and the hook."""

    @property
    def modules(self) -> tuple[torch.nn.Module, ...]:
        """The roots found so far, without roots that the script has dropped."""
        return tuple(self._modules)

    def install(self) -> None:
        """Begins the search for roots."""
        self._restore = wrap(torch.nn.Module, "__call__", self._wrap_call)
        self._wrapper = torch.nn.Module.__call__

    def stop(self) -> None:
        """Ends the search; wrapped roots stay wrapped."""
        if self._restore is not None:
            self._restore()
            self._restore = None

    def remove(self) -> list[str]:
        """Ends the search and unwraps all roots; returns the classes of roots that another library wrapped again."""
        self.stop()
        left = []
        for module, (before, ours) in list(self._before.items()):
            if not torch_names.HAS_CALL_SLOT:
                ours.remove()
            elif torch_names.own_call(module) is ours():
                torch_names.set_outer_call(module, before)
            else:
                left.append(type(module).__name__)
        self._before.clear()
        return left

    def _wrap_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch_names.is_traced():
                return original(module, *args, **kwargs)  # A picture of the graph, which ours is no part of.
            is_training = torch.is_grad_enabled()
            if self.on_any_call is not None and not self._is_inside:
                self.on_any_call(is_training)
            if self._restore is None or self._is_inside:
                return original(module, *args, **kwargs)
            # Within code under compilation no class can be changed.
            can_lift = not torch.compiler.is_compiling() and self.compiles()
            is_model = is_training and not is_criterion(module)
            if not is_model or torch_names.is_in_backward():  # In backward, a checkpoint runs a part of a root.
                is_lifted = can_lift and (is_model or _may_be_compiled(module))
                with self._lifted(original) if is_lifted else nullcontext():
                    return original(module, *args, **kwargs)
            if module not in self._modules:
                self._found(module)
            is_first = self._is_first(module)
            if is_first and self.on_first_inputs is not None:
                self.on_first_inputs([*args, *kwargs.values()])
            self._is_inside = True
            try:
                with ExitStack() as stack:
                    if can_lift:
                        stack.enter_context(self._lifted(original))
                    for around in self.around_first if is_first else ():
                        stack.enter_context(around(module))
                    return original(module, *args, **kwargs)
            finally:
                self._is_inside = False

        return call

    @contextmanager
    def _lifted(self, original: Callable[..., Any]) -> Iterator[None]:
        """Puts the plain `nn.Module.__call__` back for a while, unless another library has wrapped the wrapper."""
        kind: Any = torch.nn.Module
        is_outermost = kind.__call__ is self._wrapper
        if is_outermost:
            kind.__call__ = original
        try:
            yield
        finally:
            if is_outermost and self._restore is not None and kind.__call__ is original:
                kind.__call__ = self._wrapper

    def _is_first(self, module: torch.nn.Module) -> bool:
        """Whether the call that begins counts as the first of a root."""
        num = self._num_looks.get(module, 0)
        if num and (num >= MOST_LOOKS or self.is_before_training is None or not self.is_before_training()):
            return False
        self._num_looks[module] = num + 1
        return True

    def _found(self, module: torch.nn.Module) -> None:
        self._modules.add(module)
        self.num_found += 1
        if self.stops_at_first:
            self.stop()
        before = torch_names.own_call(module) if torch_names.HAS_CALL_SLOT else None
        for action in self.prepare:
            action(module)
        if torch_names.HAS_CALL_SLOT:
            if self._acts_on_calls:
                torch_names.set_outer_call(module, torch_names.SlotCall(self._outer(torch_names.outer_call(module))))
            ours = torch_names.own_call(module)
            # Weakly: our call holds its module, and a model that the script drops is to be freed.
            self._before[module] = before, weakref.ref(ours) if ours is not before else lambda: before
        elif self._acts_on_calls:
            self._before[module] = None, module.register_forward_pre_hook(self._hook, with_kwargs=True)

    @property
    def _acts_on_calls(self) -> bool:
        return bool(self.before_call or self.on_inputs or self.convert_inputs is not None)

    def _outer(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def outer(*args: Any, **kwargs: Any) -> Any:
            if torch_names.is_traced():
                return inner(*args, **kwargs)
            args, kwargs = self._prepared(args, kwargs)
            if self.around_again is not None and torch_names.is_in_backward():
                with self.around_again():
                    return inner(*args, **kwargs)
            return inner(*args, **kwargs)

        return outer

    def _hook(self, _: torch.nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        return (args, kwargs) if torch_names.is_traced() else self._prepared(args, kwargs)

    def _prepared(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        if torch.is_grad_enabled():
            for action in self.before_call:
                action()
            for note in self.on_inputs:
                note((*args, *kwargs.values()))
        if self.convert_inputs is not None:
            convert = self.convert_inputs
            args = tuple(convert(value) for value in args)
            kwargs = {name: convert(value) for name, value in kwargs.items()}
        return args, kwargs


def weights_of(modules: Iterable[torch.nn.Module]) -> list[torch.nn.Parameter]:
    """Parameters of modules, each once; parameters of uncalled lazy modules have no shape yet, and are left out."""
    known = {id(p): p for module in modules for p in module.parameters()}
    return [p for p in known.values() if not is_lazy(p)]


def is_of_class(module: torch.nn.Module, name: str) -> bool:
    """Whether a module is of a class with this name, or of a class derived from it."""
    return any(cls.__name__ == name for cls in type(module).__mro__)


def is_criterion(module: torch.nn.Module) -> bool:
    """Whether a module is a loss or a transform and no model: no part of a loss has a parameter."""
    return next(module.parameters(), None) is None


def _may_be_compiled(module: torch.nn.Module) -> bool:
    """Whether the call of a module may lead into torch's compiler at once."""
    has_own_call = torch_names.HAS_CALL_SLOT and torch_names.own_call(module) is not None
    return has_own_call or torch_names.is_compiled(module)
