"""Keeps torch's compiler out of the functions of `trial/` that run within a script's compiled step.

The compiler enters every Python function called by compiled code. A function that counts would be compiled anew for new
counts, and torch would check every version at every call.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType

from autotune.trial.torch import torch_names

_ROOM = __name__.removesuffix("torch.compiler_exclusion")
_excluded: set[str] = set()
"""Names of the modules done: a process that trials are forked from does the work for all trials."""


def keep_out_compiler() -> None:
    """Excludes all imported functions of `trial/` from compilation, except the function that calls a compiled model.

    When the compiler inlines an excluded function into a function of the script, the graph holds both as before.
    """
    rooms = {name: module for name, module in sys.modules.items() if name.startswith(_ROOM) and name not in _excluded}
    for name, module in rooms.items():
        for code in _codes_of(module):
            torch_names.leave_uncompiled(code)
        _excluded.add(name)


def _codes_of(owner: ModuleType | type) -> Iterator[CodeType]:
    name = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    for value in vars(owner).values():
        if isinstance(value, property):
            value = value.fget
        elif isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if getattr(value, "__module__", None) != name or value is torch_names.function_to_compile:
            continue
        if isinstance(value, FunctionType):
            yield from _with_inner(value.__code__)
        elif isinstance(value, type):
            yield from _codes_of(value)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of all functions defined within."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)
