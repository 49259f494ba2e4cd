"""The callbacks that modules and scripts register for forks: mute while autotune forks. Standard library only.

A trial is forked in steps, by way of a supervisor outside of the trial's layers. A script's callback that opens a log
anew would open the user's file there. In a fresh interpreter no fork precedes the script, so no callback is missed.
Callbacks from before `install` are those of the standard library and of the interpreter's own startup files.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

_register = os.register_at_fork
_is_mute = _collects = False


def install() -> None:
    """Takes the place of `os.register_at_fork`, for callbacks registered from now on."""
    os.register_at_fork = _register_mutable


def mute() -> None:
    """Begins a fork of ours: no callback since `install` and no garbage collection until `unmute`, in children too."""
    global _is_mute, _collects
    if not _is_mute:
        _is_mute, _collects = True, gc.isenabled()
        gc.disable()


def unmute() -> None:
    """Ends a fork of ours, in a process that may run code of the script."""
    global _is_mute
    if _is_mute:
        _is_mute = False
        if _collects:
            gc.enable()


def _register_mutable(**callbacks: Any) -> None:
    _register(**{name: _mutable(call) if callable(call) else call for name, call in callbacks.items()})


def _mutable(call: Callable[[], Any]) -> Callable[[], None]:
    def unless_mute() -> None:
        if not _is_mute:
            call()

    return unless_mute
