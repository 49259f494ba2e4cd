"""Keeps torch's compiler out of this room's functions: a training step that a script compiles calls them, too.

The compiler enters every Python function that is called while compiled code runs. Of a function that counts it would
build one version after another, each made for the counts that it has seen, and check them all at every call.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType

from autotune.trial.torch import torch_names

_ROOM = __name__.removesuffix("torch.compiler_exclusion")


def keep_out_compiler() -> None:
    """Marks all functions of this room that were imported until now, but for the one that compiles a model.

    A function of the script's that is compiled together with one of these has both in its graph as before.
    """
    rooms = [module for name, module in sys.modules.items() if name.startswith(_ROOM)]
    for module in rooms:
        for code in _codes_of(module):
            torch_names.leave_uncompiled(code)


def _codes_of(owner: ModuleType | type) -> Iterator[CodeType]:
    name = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    for value in vars(owner).values():
        if isinstance(value, property):
            value = value.fget
        elif isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if getattr(value, "__module__", None) != name or value is torch_names.compile_in_place:
            continue
        if isinstance(value, FunctionType):
            yield from _with_inner(value.__code__)
        elif isinstance(value, type):
            yield from _codes_of(value)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and that of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)
