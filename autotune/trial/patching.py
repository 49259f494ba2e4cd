"""Replacing one function of torch by a wrapper that calls it, the same way everywhere."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def wrap(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
    """Replaces `owner.name` by `make(original)`; returns a function that puts the original back.

    The wrapper is taken off only while it is still the outermost one: what others put over it stays as it is.
    """
    original = getattr(owner, name)
    replacement = functools.wraps(original)(make(original))
    setattr(owner, name, replacement)

    def restore() -> None:
        if getattr(owner, name) is replacement:
            setattr(owner, name, original)

    return restore
