"""Tells from the source whether the script builds a new loader for every epoch, whose workers end with the epoch.

A trial mostly ends within its first epoch, and does not see what the script does at the beginning of the next one.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

from autotune.trial.user_frames import user_frames

THIRD_PARTY = ("site-packages", "dist-packages")
"""Folders of installed packages."""
WRAPPERS = ("tqdm", "accelerate", "rich")
"""Packages whose iterators ask a loader for its iterator in the loop of the script. Other packages may have a loop over
epochs that is not around this request."""
LOOPS = (ast.For, ast.AsyncFor, ast.While)


class Place(NamedTuple):
    """A call that is running."""

    frame: int
    """Identity of the call, as long as it runs."""
    code: CodeType
    line: int


class _Block(NamedTuple):
    """A block of statements around a line."""

    first_line: int
    """First line of the statement with the block."""
    branch: str
    """Name of the block in its statement."""
    is_loop: bool
    is_conditional: bool


def running_calls() -> tuple[Place, ...]:
    """The running calls of the user's code, the nearest first."""
    return tuple(Place(id(frame), frame.f_code, frame.f_lineno) for frame in user_frames())


def is_rebuilt(built: Sequence[Place], iterated: Sequence[Place]) -> bool:
    """Whether the innermost loop around a loader's iteration builds the loader anew in each round.

    Args:
        built: The calls that ran when the loader was built.
        iterated: The calls that run when the loader's first iteration begins.

    Returns:
        False where the source does not tell, as with a loader that is built under a condition.
    """
    numbers = {(place.frame, place.code): number for number, place in enumerate(built)}
    is_within_both = False
    for place in iterated:
        number = numbers.get((place.frame, place.code))
        if is_within_both and (number is None or built[number].line != place.line):
            return False  # Another call has taken the identity of an ended call.
        blocks = None if _is_unknown(place.code) else _around(place.code, place.line)
        if blocks is None:
            return False
        loops = [block for block in blocks if block.is_loop]
        if is_within_both or number is None:
            if loops:
                return is_within_both
            continue
        is_within_both = True
        own = _around(place.code, built[number].line)
        if own is None or any(map(_may_be_skipped, built[:number])):
            return False
        if any(block.is_conditional and block not in blocks for block in own):
            return False
        if loops:
            return loops[-1] in own
    return False


def _is_unknown(code: CodeType) -> bool:
    """Whether a call belongs to a package that may have its loop over epochs elsewhere."""
    parts = code.co_filename.replace("\\", "/").split("/")
    packages = {parts[number + 1] for number, part in enumerate(parts[:-1]) if part in THIRD_PARTY}
    return bool(packages) and not packages <= set(WRAPPERS)


def _may_be_skipped(place: Place) -> bool:
    """Whether a call builds a loader under a condition, or its source is unknown."""
    blocks = _around(place.code, place.line)
    return blocks is None or any(block.is_conditional for block in blocks)


def _around(code: CodeType, line: int) -> tuple[_Block, ...] | None:
    """The blocks around a line of a function or module, the outermost first; None without a source."""
    return _blocks_around(code.co_filename, None if code.co_name == "<module>" else code.co_firstlineno, line)


@lru_cache(maxsize=256)
def _blocks_around(path: str, first_line: int | None, line: int) -> tuple[_Block, ...] | None:
    """As `_around`; codes of two files may be equal.

    Args:
        path: The file.
        first_line: First line of the function; None for a module.
        line: The line.
    """
    try:
        lines = linecache.getlines(path)
        source = lines if first_line is None else inspect.getblock(lines[first_line - 1 :])
        is_indented = first_line is not None and source[0].startswith((" ", "\t"))
        # Texts of several lines may begin further to the left, so that the indentation stays.
        tree: Any = ast.parse("".join(["if True:\n", *source] if is_indented else source))
    except Exception:  # the user's source, which may be no Python, or be encoded in any way
        return None
    body = tree.body[0].body if is_indented else tree.body
    return tuple(_blocks(body, line - (first_line or 1) + 1 + is_indented)) if body else None


def _blocks(body: Sequence[ast.stmt], line: int) -> Iterator[_Block]:
    for statement in body:
        if not statement.lineno <= line <= (statement.end_lineno or statement.lineno):
            continue
        for branch, inner in _branches(statement):
            if inner and inner[0].lineno <= line <= (inner[-1].end_lineno or inner[-1].lineno):
                if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    yield _Block(
                        statement.lineno,
                        branch,
                        is_loop=isinstance(statement, LOOPS) and branch == "body",
                        is_conditional=_is_conditional(statement, branch),
                    )
                yield from _blocks(inner, line)


def _branches(statement: ast.AST) -> Iterator[tuple[str, list[Any]]]:
    for branch in ("body", "orelse", "finalbody"):
        yield branch, getattr(statement, branch, [])
    for name in ("handlers", "cases"):
        for number, inner in enumerate(getattr(statement, name, [])):
            yield f"{name} {number}", inner.body


def _is_conditional(statement: ast.stmt, branch: str) -> bool:
    """Whether a block may be left out when its statement runs."""
    if isinstance(statement, ast.Try | ast.TryStar):
        return branch.startswith("handlers")
    return isinstance(statement, ast.If | ast.Match) or (isinstance(statement, LOOPS) and branch == "orelse")
