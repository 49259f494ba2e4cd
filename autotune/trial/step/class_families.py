"""Wraps methods of a class of torch and of all subclasses, also of the script's own subclasses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autotune.trial.torch.patching import wrap

Make = Callable[[Callable[..., Any]], Callable[..., Any]]


def wrap_family(base: Any, names: Sequence[str], make: Make) -> None:
    """Replaces each definition of the named methods by `make(method)`: in known classes now, in new classes when built.

    A method with a call of the base class's method runs through several wrappers.

    Args:
        base: The class at the head of the family.
        names: Names of the methods.
        make: Gives the wrapper of a method.
    """
    known: set[Any] = set()

    def wrap_class(cls: Any) -> None:
        if cls not in known:
            known.add(cls)
            for name in names:
                if name in vars(cls):
                    wrap(cls, name, make)

    def wrap_init(original: Callable[..., Any]) -> Callable[..., Any]:
        def init(built: Any, *args: Any, **kwargs: Any) -> None:
            for cls in type(built).__mro__:
                if issubclass(cls, base):
                    wrap_class(cls)
            original(built, *args, **kwargs)

        return init

    queue: list[Any] = [base]
    while queue:
        cls = queue.pop()
        wrap_class(cls)
        queue.extend(cls.__subclasses__())
    wrap(base, "__init__", wrap_init)
