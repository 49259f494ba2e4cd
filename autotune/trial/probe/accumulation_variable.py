"""Finds the variable by which a script accumulates gradients, in a loop of the usual shape.

The usual guides teach a variable of the main module, a division of the loss by this variable, and a step after so many
batches:

    loss = loss / accumulation_steps
    loss.backward()
    if (number + 1) % accumulation_steps == 0:
        optimizer.step()
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotune.settings import BY_NAME

NAMES = frozenset(
    {*BY_NAME["grad_accum_steps"].arguments.numbers, "accum_steps", "accumulation", "accumulate", "accum"}
)
"""Names of such variables, in lower case."""


def accumulation_variable(num_micro_batches: int) -> str:
    """Name of the only variable of the main module with this many micro-batches; empty without a usual loop."""
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if num_micro_batches < 2 or path is None:
        return ""
    found = [
        name
        for name, value in vars(main).items()
        if name.lower() in NAMES and type(value) is int and value == num_micro_batches
    ]
    try:
        tree = ast.parse(Path(path).read_text(errors="replace"))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ""
    return found[0] if len(found) == 1 and _has_usual_loop(tree, found[0]) else ""


def _has_usual_loop(tree: ast.Module, name: str) -> bool:
    """Whether a loop divides by the variable, asks for the rest of a division, and nothing else binds the name."""
    loops = [node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While))]
    operators = {type(node.op) for loop in loops for node in _divisions_by(loop, name)}
    return {ast.Div, ast.Mod} <= operators and _num_bindings(tree, name) == 1


def _divisions_by(loop: ast.AST, name: str) -> Iterator[Any]:
    """Operations of a loop with the variable on the right."""
    for node in ast.walk(loop):
        right = node.right if isinstance(node, ast.BinOp) else node.value if isinstance(node, ast.AugAssign) else None
        if isinstance(right, ast.Name) and right.id == name:
            yield node


def _num_bindings(tree: ast.Module, name: str) -> int:
    """Places that give the name a value: assignments, loop variables and parameters."""
    stored = sum(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(tree))
    parameters = sum(isinstance(node, ast.arg) and node.arg == name for node in ast.walk(tree))
    defaults = [d for n in ast.walk(tree) if isinstance(n, ast.arguments) for d in (*n.defaults, *n.kw_defaults)]
    bound_early = sum(isinstance(d, ast.Name) and d.id == name for d in defaults)
    return stored + parameters + bound_early
