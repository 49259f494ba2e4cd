"""How processes of the script are started, and whether spawned ones can import it without training again."""

from __future__ import annotations

import ast
import io
import multiprocessing
import pickle
import sys
from pathlib import Path
from typing import Any

import torch


def start_method(loader: Any) -> str:
    """The start method of a loader's workers: fork, spawn or forkserver. Asking fixes nothing for the script."""
    context = loader.multiprocessing_context
    if context is not None:
        return str(context.get_start_method())
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def inherited_start(loader: Any) -> str:
    """The start method that a loader's workers inherit from this process; empty for a fork or a method by name.

    A rank of `torch.multiprocessing.spawn` starts its workers by spawn: `multiprocessing.spawn.prepare` makes the
    parent's method the default of the process that it starts.
    """
    method = start_method(loader)
    is_started = multiprocessing.parent_process() is not None and loader.multiprocessing_context is None
    return method if is_started and method != "fork" else ""


class _Light(pickle.Pickler):
    """Pickles everything but the data of tensors and arrays, which any process can hand to another."""

    def reducer_override(self, obj: Any) -> Any:
        """A small stand-in for data."""
        return (int, ()) if isinstance(obj, torch.Tensor) or type(obj).__name__ == "ndarray" else NotImplemented


def why_not_spawned(loader: Any) -> str:
    """Why workers of a loader cannot be started without a fork; empty when possible."""
    if not is_guarded():
        return 'the script has no `if __name__ == "__main__"`, and every worker would run the script again'
    for name in ("dataset", "collate_fn", "worker_init_fn"):
        try:
            _Light(io.BytesIO()).dump(getattr(loader, name))
        except Exception as error:  # Anything may fail in a class of the script.
            return f"the loader's {name} cannot be handed to a new process: {type(error).__name__}: {error}"[:200]
    return ""


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
