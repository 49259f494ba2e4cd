"""Tells from the source whether the script builds a new loader for every epoch, whose workers end with the epoch.

A trial mostly ends within its first epoch, and does not see what the script does at the beginning of the next one. In
doubt the answer is no: a wrong yes costs the user the setting that keeps workers.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from autotune.trial.user_frames import user_frames

THIRD_PARTY = ("site-packages", "dist-packages")
"""Folders of installed packages."""
WRAPPERS = ("tqdm", "accelerate", "rich")
"""Packages whose iterators ask a loader for its iterator in the loop of the script. Other packages may have a loop over
epochs that is not around this request."""
HARMLESS_DECORATORS = ("property", "staticmethod", "classmethod")
"""Decorators that call the function each time; others may keep the result."""
LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
EXIT = "exit"


class RunningCall(NamedTuple):
    """A call that is running. Plain values: a script may pickle its loaders, and what hangs on these."""

    frame: int
    """Identity of the call, as long as it runs."""
    path: str
    name: str
    first_line: int
    line: int


class _Block(NamedTuple):
    """A block of statements around a line."""

    first_line: int
    """First line of the statement with the block."""
    branch: str
    """Name of the block in its statement; `EXIT` for a way past the line."""
    is_loop: bool
    is_conditional: bool


class _Surroundings(NamedTuple):
    """What is around a line of a function or module."""

    blocks: tuple[_Block, ...]
    """The outermost first."""
    begins_iteration: bool
    """Whether the line is the head of a `for`, or has a `yield from`."""


def running_calls() -> tuple[RunningCall, ...]:
    """The running calls of the user's code, the nearest first."""
    return tuple(
        RunningCall(
            id(frame), frame.f_code.co_filename, frame.f_code.co_name, frame.f_code.co_firstlineno, frame.f_lineno
        )
        for frame in user_frames()
    )


def builds_each_round(built: Sequence[RunningCall], iterated: Sequence[RunningCall]) -> bool:
    """Whether the innermost loop around a loader's iteration builds the loader anew in each round.

    Args:
        built: The calls that ran when the loader was built.
        iterated: The calls that run when an iteration begins.

    Returns:
        False where the source does not tell, as with a loader that is built under a condition.
    """
    try:
        return _builds_each_round(built, iterated)
    except Exception:  # a guess about the user's source may not end a training
        return False


def _builds_each_round(built: Sequence[RunningCall], iterated: Sequence[RunningCall]) -> bool:
    index_in_built = {call[:4]: index for index, call in enumerate(built)}
    is_first, is_within_both = True, False
    for call in iterated:
        index = index_in_built.get(call[:4])
        if is_within_both and (index is None or built[index].line != call.line):
            return False  # Another call has taken the identity of an ended call.
        packages = _packages(call.path)
        around = None if packages - set(WRAPPERS) else _around(call)
        if around is None or (call.name.startswith("<") and call.name != "<module>"):
            return False
        if is_first and not packages:
            is_first = False
            if not around.begins_iteration:
                return False
        loops = [block for block in around.blocks if block.is_loop]
        if is_within_both or index is None:
            if loops:
                return is_within_both
            continue
        is_within_both = True
        own = _around(built[index])
        if own is None or any(map(_may_be_skipped, built[:index])):
            return False
        if any(block.is_conditional and (block.branch == EXIT or block not in around.blocks) for block in own.blocks):
            return False
        if loops:
            return loops[-1] in own.blocks
    return False


def _packages(path: str) -> set[str]:
    """Installed packages that a file belongs to."""
    parts = path.replace("\\", "/").split("/")
    return {parts[number + 1] for number, part in enumerate(parts[:-1]) if part in THIRD_PARTY}


def _may_be_skipped(call: RunningCall) -> bool:
    """Whether a call builds a loader under a condition, or its source is unknown."""
    around = _around(call)
    return around is None or any(block.is_conditional for block in around.blocks)


def _around(call: RunningCall) -> _Surroundings | None:
    """What is around the line of a call; None without a source."""
    return _surroundings(call.path, None if call.name == "<module>" else call.first_line, call.line)


@lru_cache(maxsize=256)
def _surroundings(path: str, first_line: int | None, line: int) -> _Surroundings | None:
    """As `_around`.

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
    if not body:
        return None
    line_here = line - (first_line or 1) + 1 + is_indented
    return _Surroundings(tuple(_blocks(body, line_here)), _begins_iteration(body, line_here))


def _blocks(body: Sequence[ast.stmt], line: int) -> Iterator[_Block]:
    for statement in body:
        if (statement.end_lineno or statement.lineno) < line:
            if _may_leave(statement):
                yield _Block(statement.lineno, EXIT, is_loop=False, is_conditional=True)
            continue
        if statement.lineno > line:
            return
        if isinstance(statement, FUNCTIONS) and any(map(_may_keep_result, statement.decorator_list)):
            yield _Block(statement.lineno, "decorator", is_loop=False, is_conditional=True)
        inner = next(_branches_with(statement, line), None)
        if inner is None:
            if any(isinstance(node, ast.IfExp | ast.BoolOp) for node in _in_head(statement, line)):
                yield _Block(statement.lineno, "expression", is_loop=False, is_conditional=True)
            if any(isinstance(node, COMPREHENSIONS) for node in _in_head(statement, line)):
                yield _Block(statement.lineno, "comprehension", is_loop=True, is_conditional=False)
            return
        branch, statements = inner
        if not isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            yield _Block(
                statement.lineno,
                branch,
                is_loop=isinstance(statement, LOOPS) and branch == "body",
                is_conditional=_is_conditional(statement, branch),
            )
        yield from _blocks(statements, line)
        return


def _branches(statement: ast.AST) -> Iterator[tuple[str, list[Any]]]:
    for branch in ("body", "orelse", "finalbody"):
        found = getattr(statement, branch, [])
        yield branch, found if isinstance(found, list) else []
    for name in ("handlers", "cases"):
        for number, inner in enumerate(getattr(statement, name, [])):
            yield f"{name} {number}", inner.body


def _branches_with(statement: ast.AST, line: int) -> Iterator[tuple[str, list[Any]]]:
    """The block of a statement with a line, by the block's name."""
    for branch, inner in _branches(statement):
        if inner and inner[0].lineno <= line <= (inner[-1].end_lineno or inner[-1].lineno):
            yield branch, inner


def _in_head(statement: ast.stmt, line: int) -> Iterator[ast.AST]:
    """The parts of a statement on a line, without its blocks."""
    inside = {id(node) for _, inner in _branches(statement) for one in inner for node in ast.walk(one)}
    for node in ast.walk(statement):
        first = getattr(node, "lineno", None)
        if id(node) not in inside and first is not None and first <= line <= (getattr(node, "end_lineno", 0) or first):
            yield node


def _begins_iteration(body: Sequence[ast.stmt], line: int) -> bool:
    for statement in body:
        if not statement.lineno <= line <= (statement.end_lineno or statement.lineno):
            continue
        inner = next(_branches_with(statement, line), None)
        if inner is not None:
            return _begins_iteration(inner[1], line)
        if isinstance(statement, ast.For | ast.AsyncFor):
            return True
        return any(isinstance(node, ast.YieldFrom) for node in _in_head(statement, line))
    return False


def _may_leave(statement: ast.stmt) -> bool:
    """Whether a statement may leave the function or the round, so that later statements do not run."""
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return False
    if isinstance(statement, ast.Return | ast.Continue):
        return True
    is_loop = isinstance(statement, LOOPS)
    return any(
        _may_leave(one) and not (is_loop and isinstance(one, ast.Continue))
        for _, inner in _branches(statement)
        for one in inner
    )


def _may_keep_result(decorator: ast.expr) -> bool:
    return not (isinstance(decorator, ast.Name) and decorator.id in HARMLESS_DECORATORS)


def _is_conditional(statement: ast.stmt, branch: str) -> bool:
    """Whether a block may be left out when its statement runs."""
    if isinstance(statement, ast.Try | ast.TryStar):
        return branch.startswith("handlers")
    if isinstance(statement, ast.While):
        return True
    return isinstance(statement, ast.If | ast.Match) or (isinstance(statement, LOOPS) and branch == "orelse")
