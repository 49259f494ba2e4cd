"""Replaces functions of torch by wrappers, and puts the originals back."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PACKAGE = str(Path(__file__).resolve().parents[2]) + os.sep
_REBOUND = "_autotune_rebound"
"""Attribute of a function made by `rebindable`: a list with the function to call."""
Restore = Callable[[], None]
_wrapped: dict[Restore, tuple[str, Callable[[], bool]]] = {}
"""Functions that restore the originals of this process, in the order of wrapping. Each has the name of the original,
and a function that says whether nothing stays in force after the restore."""
IMPORTED_BY_NAME = (
    ("torch.autograd", "backward"),
    ("torch.cuda", "is_available"),
    ("torch.cuda", "device_count"),
    ("torch.cuda", "set_device"),
    ("torch.cuda", "reset_peak_memory_stats"),
    ("torch.nn.utils", "clip_grad_norm_"),
    ("torch.nn.utils", "clip_grad_value_"),
    ("torch.nn.utils", "clip_grads_with_norm_"),
    ("torch.nn.utils.clip_grad", "clip_grad_norm_"),
    ("torch.nn.utils.clip_grad", "clip_grad_value_"),
)
"""Functions that trials wrap after the script's imports; modules may have imported the functions by name by then."""


def wrap(
    owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]], *, only_notes: bool = False
) -> Restore:
    """Replaces `owner.name` by `make(original)`; returns a function that restores the original.

    The returned function does nothing once somebody has replaced the wrapper: a later wrapper stays in place.

    Args:
        owner: Module, class or object.
        name: Name of the function.
        make: Makes the wrapper of the original.
        only_notes: Whether the wrapper only watches calls. Such a wrapper may stay beneath a later wrapper.
    """
    rebound: list[Callable[..., Any]] | None = getattr(getattr(owner, name), _REBOUND, None)
    original = getattr(owner, name) if rebound is None else rebound[0]
    replacement = functools.wraps(original)(_past_lazy_modules(owner, original, make(original)))
    if rebound is None:
        setattr(owner, name, replacement)
    else:
        rebound[0] = replacement

    def is_outermost() -> bool:
        return (rebound[0] if rebound is not None else getattr(owner, name)) is replacement

    def restore() -> None:
        _wrapped.pop(restore, None)
        if not is_outermost():
            return
        if rebound is not None:
            rebound[0] = original
        else:
            setattr(owner, name, original)

    owner_name = getattr(owner, "__name__", type(owner).__name__)
    _wrapped[restore] = f"{owner_name}.{name}", (lambda: True) if only_notes else is_outermost
    return restore


def _past_lazy_modules(owner: Any, original: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """The wrapper; as a method of tensors without the parameters of lazy modules, which refuse most questions."""
    torch = sys.modules.get("torch")  # Imported already, or no part of the training.
    if torch is None or owner is not getattr(torch, "Tensor", None):
        return wrapper
    from autotune.trial.torch.torch_names import past_uninitialized

    return past_uninitialized(original, wrapper)


@contextmanager
def recorded() -> Iterator[list[Restore]]:
    """Fills a list with the restoring functions of all calls of `wrap` within the context, in order."""
    before, made = set(_wrapped), list[Restore]()
    yield made
    made.extend(restore for restore in _wrapped if restore not in before)


def unwrap(restores: Sequence[Restore]) -> list[str]:
    """Restores the originals of several calls of `wrap`, the latest first; returns names with another's wrapper."""
    left = []
    for restore in reversed(restores):
        name, may_be_left = _wrapped.get(restore, ("", lambda: True))
        left += [] if may_be_left() else [name]
        restore()
    return left


def unwrap_all() -> None:
    """Restores all functions that `wrap` has replaced in this process, the latest first."""
    for restore in reversed(tuple(_wrapped)):
        restore()


def original_of(function: Any) -> Any:
    """The function beneath all wrappers of this package."""
    while getattr(getattr(function, "__code__", None), "co_filename", "").startswith(_PACKAGE):
        if not hasattr(function, "__wrapped__"):
            break
        function = function.__wrapped__
    return function


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


def make_rebindable() -> None:
    """Lets wrappers of later sessions reach modules that import torch's functions by name."""
    for module, name in IMPORTED_BY_NAME:
        owner = importlib.import_module(module)
        if hasattr(owner, name):
            rebindable(owner, name)
