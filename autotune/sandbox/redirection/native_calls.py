"""Redirection of library functions that open files natively. Standard library only."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from autotune.sandbox.redirection import path_calls


@dataclass(frozen=True, slots=True)
class Native:
    """A function and the argument with the path."""

    name: str
    """Name in the module; a method has a dot."""
    position: int
    parameter: str
    writes: bool = False
    """Otherwise it only reads."""
    keeps_content: bool = False
    """Whether the function changes an existing file instead of replacing the file."""


NATIVES: dict[str, tuple[Native, ...]] = {
    "sqlite3.dbapi2": (Native("connect", 0, "database", writes=True, keeps_content=True),),
    "safetensors": (Native("safe_open", 0, "filename"), Native("serialize_file", 1, "filename", writes=True)),
    "tokenizers": (Native("Tokenizer.from_file", 0, "path"), Native("Tokenizer.save", 1, "path", writes=True)),
}
"""By the defining module. Other native writers escape; the tuner names their changes afterwards."""
TORCH: dict[str, tuple[Native, ...]] = {
    "torch": (Native("save", 1, "f", writes=True), Native("load", 0, "f")),
    "torch.serialization": (Native("save", 1, "f", writes=True), Native("load", 0, "f")),
    "torch.jit": (
        Native("save", 1, "f", writes=True),
        Native("load", 0, "f"),
        Native("RecursiveScriptModule.save", 1, "f", writes=True),
    ),
}


class NativesFinder:
    """An import finder: redirects a module's functions after the module's own finder has loaded the module."""

    def __init__(self) -> None:
        self._being_found: set[str] = set()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """The spec of the next finder, with a loader for redirected functions."""
        if name not in NATIVES or name in self._being_found:
            return None
        self._being_found.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._being_found.discard(name)
        if spec is not None and spec.loader is not None:
            _redirect_when_loaded(spec)
        return spec


def install() -> None:
    """Redirects the functions of loaded libraries, and of libraries loaded later."""
    sys.meta_path.insert(0, NativesFinder())
    for name, natives in NATIVES.items():
        if name in sys.modules:
            redirect(sys.modules[name], natives)


def redirect(module: Any, natives: Sequence[Native]) -> None:
    """Redirects functions of a module, except functions missing from this version."""
    for native in natives:
        *classes, name = native.name.split(".")
        owner = functools.reduce(lambda inner, part: getattr(inner, part, None), classes, module)
        original = getattr(owner, name, None)
        if original is not None:
            function = _with_place(original, native)
            is_static = classes and native.position == 0
            setattr(owner, name, staticmethod(function) if is_static else function)


def _redirect_when_loaded(spec: ModuleSpec) -> None:
    loader: Any = spec.loader
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        redirect(module, NATIVES[spec.name])

    loader.exec_module = exec_module


def _with_place(original: Callable[..., Any], native: Native) -> Callable[..., Any]:
    def function(*arguments: Any, **named: Any) -> Any:
        if native.parameter in named:
            named[native.parameter] = _place(named[native.parameter], native)
        elif len(arguments) > native.position:
            place = _place(arguments[native.position], native)
            arguments = (*arguments[: native.position], place, *arguments[native.position + 1 :])
        return original(*arguments, **named)

    functools.update_wrapper(function, original, updated=())
    return function


def _place(path: Any, native: Native) -> Any:
    """The place for a path. Names such as `:memory:` and `file:...` are no paths, and stay."""
    if isinstance(path, (str, os.PathLike)) and os.fsdecode(path).startswith((":", "file:")):
        return path
    return path_calls.place_of(path, writes=native.writes, keeps_content=native.keeps_content)
