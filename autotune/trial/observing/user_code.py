"""Recognises the user's code among the frames of a stack, and finds the statement around a line."""

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
"""Deepest stack to read; a deeper recursion is no training loop."""

Place = tuple[str, int]
"""File and line."""
Stack = tuple[Place, ...]
"""Places of all frames of the user's code, innermost first."""

_is_users: dict[CodeType, bool] = {}


def is_users(code: CodeType) -> bool:
    """Whether the user wrote the code: True for a file outside installed packages, standard library and autotune."""
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
            # Between two statements a frame has no line.
            lines.append((frame.f_code.co_filename, frame.f_lineno or frame.f_code.co_firstlineno))
        frame = frame.f_back
        depth += 1
    return tuple(lines)


def shown_place(place: Place | None) -> str:
    """`file:line` with the file's name alone; empty for None."""
    return "" if place is None else f"{Path(place[0]).name}:{place[1]}"


def statement_around(source: str, line: int, training_lines: Collection[int]) -> tuple[int, int]:
    """First and last line of the largest statement around a line without any training line.

    The statement lies within the function of the line. For a training line, and in a file without Python code, the
    result is the line alone.

    Args:
        source: Text of the file.
        line: Number of the line, from 1.
        training_lines: Lines of the file that load, run the model forward or backward, or step the optimizer.
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
                best = None  # A statement around a function does not run when the function's lines run.
            elif isinstance(child, ast.stmt) and best is None:
                holds_training = any(first <= other <= last for other in training_lines)
                best = None if holds_training else (first, last)
            body.append(child)
    return best or (line, line)


def _lines_of(node: ast.AST) -> tuple[int, int]:
    first = getattr(node, "lineno", 0)
    return first, getattr(node, "end_lineno", None) or first
