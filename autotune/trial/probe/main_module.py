"""Whether processes started by spawn can import the script without running the training again."""

from __future__ import annotations

import ast
import multiprocessing
import sys
from pathlib import Path
from typing import Any


def start_method(loader: Any) -> str:
    """The start method of a loader's workers: fork, spawn or forkserver. Asking fixes nothing for the script."""
    context = loader.multiprocessing_context
    if context is not None:
        return str(context.get_start_method())
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def is_guarded() -> bool:
    """Whether the main module asks for `__name__` before its work; True when the source cannot be read.

    A spawned process imports the main module by file, under a different name.
    """
    path = getattr(sys.modules["__main__"], "__file__", None)
    try:
        return path is None or has_guard(Path(path).read_text(errors="replace"))
    except OSError:
        return True


def has_guard(source: str) -> bool:
    """Whether some statement at the top level of a module depends on `__name__`."""
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError):
        return True
    tests = [statement.test for statement in statements if isinstance(statement, ast.If)]
    names = [node.id for test in tests for node in ast.walk(test) if isinstance(node, ast.Name)]
    return "__name__" in names
