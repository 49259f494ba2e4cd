"""Replacing one function of torch by a wrapper that calls it, the same way everywhere."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_REBOUND = "_autotune_rebound"
"""Attribute of a function that `rebindable` made: the list that holds what it calls."""
_wrapped: dict[Callable[[], None], None] = {}
"""What puts back the original of every function that is wrapped in this process, the earliest first."""


def wrap(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
    """Replaces `owner.name` by `make(original)`; returns a function that puts the original back.

    The wrapper is taken off only while it is still the outermost one: what others put over it stays as it is.
    """
    rebound: list[Callable[..., Any]] | None = getattr(getattr(owner, name), _REBOUND, None)
    original = getattr(owner, name) if rebound is None else rebound[0]
    replacement = functools.wraps(original)(make(original))
    if rebound is None:
        setattr(owner, name, replacement)
    else:
        rebound[0] = replacement

    def restore() -> None:
        _wrapped.pop(restore, None)
        if rebound is not None:
            if rebound[0] is replacement:
                rebound[0] = original
        elif getattr(owner, name) is replacement:
            setattr(owner, name, original)

    _wrapped[restore] = None
    return restore


def unwrap_all() -> None:
    """Puts back the original of every function that `wrap` has replaced in this process."""
    for restore in reversed(tuple(_wrapped)):
        restore()


def rebindable(owner: Any, name: str) -> None:
    """Lets `wrap` reach those too who import the function by its name before it is wrapped.

    Whoever imports it from now on holds a function that calls whatever `wrap` has put in its place by then.
    """
    original = getattr(owner, name)
    if hasattr(original, _REBOUND):
        return
    rebound = [original]

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return rebound[0](*args, **kwargs)

    setattr(call, _REBOUND, rebound)
    setattr(owner, name, call)
