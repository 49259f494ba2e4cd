"""Replaces functions of torch by wrappers, and puts the originals back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_REBOUND = "_autotune_rebound"
"""Attribute of a function made by `rebindable`: a list with the function to call."""
_wrapped: dict[Callable[[], None], None] = {}
"""Functions that restore the originals of this process, in the order of wrapping."""


def wrap(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
    """Replaces `owner.name` by `make(original)`; returns a function that restores the original.

    The returned function does nothing once somebody has replaced the wrapper: a later wrapper stays in place.
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
    """Restores all functions that `wrap` has replaced in this process, the latest first."""
    for restore in reversed(tuple(_wrapped)):
        restore()


def rebindable(owner: Any, name: str) -> None:
    """Lets a later `wrap` also reach modules that import the function by name before the `wrap`.

    Imports from now on get a forwarding function, and `wrap` changes the target of the forwarding.
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
