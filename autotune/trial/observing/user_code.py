"""Whose code a frame is: the user's, a library's, or ours; and the statement that a line belongs to."""

from __future__ import annotations

import ast
import os
import sysconfig
from collections.abc import Collection
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

_PACKAGE = str(Path(__file__).resolve().parent.parent.parent) + os.sep
_TORCH = str(Path(torch.__file__).resolve().parent) + os.sep
_LIBRARIES = tuple(
    os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
MAX_DEPTH = 200
"""Frames looked at: a deeper recursion is no training loop."""

Place = tuple[str, int]
"""File and line."""
Stack = tuple[Place, ...]
"""Of every frame of the user's code, innermost first."""

_is_users: dict[CodeType, bool] = {}


def is_users(code: CodeType) -> bool:
    """Whether code was written by the user: it lies in a file, and in no package of the interpreter's, nor in ours."""
    known = _is_users.get(code)
    if known is None:
        name = code.co_filename
        is_file = not name.startswith(("<", "frozen "))
        known = is_file and not os.path.realpath(name).startswith((_PACKAGE, _TORCH, *_LIBRARIES))
        _is_users[code] = known
    return known


def is_torchs(code: CodeType) -> bool:
    """Whether code is torch's own."""
    return code.co_filename.startswith(_TORCH)


def users_stack(frame: FrameType | None) -> Stack:
    """(file, line) of the frames of the user's code, from this one outwards."""
    lines = []
    depth = 0
    while frame is not None and depth < MAX_DEPTH:
        if is_users(frame.f_code):
            # Between two statements a frame is at no line.
            lines.append((frame.f_code.co_filename, frame.f_lineno or frame.f_code.co_firstlineno))
        frame = frame.f_back
        depth += 1
    return tuple(lines)


def shown_place(place: Place | None) -> str:
    """`file:line` with the file's name alone; empty for None."""
    return "" if place is None else f"{Path(place[0]).name}:{place[1]}"


def statement_around(source: str, line: int, training_lines: Collection[int]) -> tuple[int, int]:
    """First and last line of the largest statement around a line that holds none of the training itself.

    It never reaches beyond the function that the line is in. A line of the training itself stands for itself, and so
    does one in a file that is no Python.

    Args:
        source: Text of the file.
        line: From 1.
        training_lines: Lines of that file which load, run the model forward or backward, or step the optimizer.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return line, line
    best: tuple[int, int] | None = None
    body: list[Any] = [tree]
    while body:
        node = body.pop()
        for child in ast.iter_child_nodes(node):
            first, last = _lines_of(child)
            if first and not first <= line <= last:
                continue
            is_scope = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda))
            if is_scope:
                best = None  # What lies around a function does not run where its lines do.
            elif isinstance(child, ast.stmt) and best is None:
                holds_training = any(first <= other <= last for other in training_lines)
                best = None if holds_training else (first, last)
            body.append(child)
    return best or (line, line)


def _lines_of(node: ast.AST) -> tuple[int, int]:
    first = getattr(node, "lineno", 0)
    return first, getattr(node, "end_lineno", None) or first
