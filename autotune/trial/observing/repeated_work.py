"""Finds the part of a sample's building with the same result in every epoch, and keeps the results of the part.

The random generators of torch, numpy and Python are compared before every line of the dataset's `__getitem__`. A list
of transforms, as in torchvision's Compose, is divided between its members.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import random
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import torch

NUM_CHECKED = 12
"""Samples built twice, with other random numbers, to compare the results."""
TRANSFORMS = ("transform", "transforms")
"""Attributes of datasets with a transform, as in torchvision."""
MAX_DEPTH = 4
"""Datasets within datasets, such as a Subset of a Subset."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The place where samples begin to differ between epochs, with all results before the place."""

    where: str
    first_random: str
    share: float
    """Share of a sample's time, 0 to 1; a share is steadier than seconds on a busy machine."""
    rest_s: float | None
    """Time of the remaining work per sample, run on the kept results alone; None when it cannot be run alone. After a
    heavy read the same work takes far longer, for want of warm processor caches: 184 us instead of 10."""
    values: list[Any] = field(repr=False)
    """Results of the part, for each sample."""


def repeated_work(dataset: Any, indices: Sequence[int]) -> Cut | None:
    """The repeated part of building some samples; None when the first statement is random, or unknown."""
    if not indices:
        return None
    if _is_repeating(dataset, indices[:NUM_CHECKED]):
        return Cut("", "", 1.0, 0.0, [dataset[index] for index in indices])
    return _before_transform(dataset, indices) or _before_line(dataset, indices)


def _is_repeating(dataset: Any, indices: Sequence[int]) -> bool:
    """Whether whole samples are equal in two turns, and no random number is drawn."""
    for index in indices:
        before = _random_state()
        first = dataset[index]
        if _random_state() != before:
            return False
        _reseed(index + 1)
        if not are_equal(first, dataset[index]):
            return False
    return True


def _reseed(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def _random_state() -> tuple[Any, ...]:
    """State of the three common random generators."""
    state: Any = np.random.get_state()
    name, keys, position, *rest = state
    return hash(torch.get_rng_state().numpy().tobytes()), hash(keys.tobytes()), position, *rest, random.getstate(), name


def are_equal(one: Any, other: Any) -> bool:
    """Whether two samples have the same content."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and bool(torch.equal(one, other))
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(are_equal, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(are_equal(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray) or hasattr(one, "getbands"):
        return bool(np.array_equal(np.asarray(one), np.asarray(other)))
    try:
        return bool(one == other)
    except Exception:  # a comparison of the user's own
        return False


# A list of transforms ------------------------------------------------------------------------------------------------


class _Noted:
    """A transform that notes its input, and the time and random state at its beginning."""

    def __init__(self, transform: Any, log: list[tuple[int, float, Any]], position: int) -> None:
        self.transform, self._log, self._position = transform, log, position

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._log.append((self._position, time.perf_counter(), args))
        return self.transform(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transform, name)


def innermost(dataset: Any) -> Any:
    """The dataset within a Subset or another dataset around a dataset."""
    for _ in range(MAX_DEPTH):
        inner = getattr(dataset, "dataset", None)
        if inner is None or not hasattr(inner, "__getitem__"):
            return dataset
        dataset = inner
    return dataset


def _transforms_of(dataset: Any) -> tuple[list[Any], Callable[[list[Any]], None]] | None:
    """The dataset's transforms in order, and a function that replaces the transforms; None without a transform."""
    inner = innermost(dataset)
    for name in TRANSFORMS:
        found = vars(inner).get(name) if hasattr(inner, "__dict__") else None
        if found is None or not callable(found):
            continue
        steps = getattr(found, "transforms", None)
        if isinstance(steps, list):
            return steps, lambda new, found=found: setattr(found, "transforms", new)
        if isinstance(found, torch.nn.Sequential):
            return list(found), lambda new, inner=inner, name=name: setattr(inner, name, _Chain(new))
        return [found], lambda new, inner=inner, name=name: setattr(inner, name, new[0])
    return None


class _Chain:
    """Transforms, one after the other."""

    def __init__(self, steps: Sequence[Any]) -> None:
        self._steps = steps

    def __call__(self, value: Any) -> Any:
        for step in self._steps:
            value = step(value)
        return value


def _before_transform(dataset: Any, indices: Sequence[int]) -> Cut | None:
    """The work before the first transform whose result is not repeated; None without such a transform."""
    found = _transforms_of(dataset)
    if found is None:
        return None
    steps, replace = found
    log: list[tuple[int, float, Any]] = []
    replace([_Noted(step, log, position) for position, step in enumerate(steps)])
    try:
        repeated = len(steps) - 1  # A repeated last transform would make the whole sample repeat.
        for index in indices[:NUM_CHECKED]:
            repeated = min(repeated, _repeated_inputs(dataset, index, log))
        if repeated < 0:
            return None
        values, part_s, all_s = [], 0.0, 0.0
        for index in indices:
            log.clear()
            began = time.perf_counter()
            sample = dataset[index]
            all_s += time.perf_counter() - began
            _, at, args = next(each for each in log if each[0] == repeated)
            part_s += at - began
            values.append((args[0], *_labels(sample)))
        name = type(steps[repeated]).__name__
        rest_s = _usual_s(_Chain(steps[repeated:]), [value[0] for value in values])
        return Cut(_place_of(steps[repeated], dataset), name, part_s / all_s, rest_s, values)
    finally:
        replace(list(steps))


def _usual_s(rest: Callable[[Any], Any], values: Sequence[Any]) -> float:
    """Median seconds of a function over some values; each value has been used once before."""
    times = []
    for value in values:
        rest(value)
        began = time.perf_counter()
        rest(value)
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def _labels(sample: Any) -> tuple[Any, ...]:
    """The rest of a sample beside its transformed part."""
    return tuple(sample[1:]) if isinstance(sample, (tuple, list)) else ()


def _repeated_inputs(dataset: Any, index: int, log: list[tuple[int, float, Any]]) -> int:
    """Position of the last transform that gets the same input in two turns, before any random draw; -1 without one."""
    turns = []
    for seed in (index + 1, index + 2):
        log.clear()
        _reseed(seed)
        dataset[index]
        turns.append(list(log))
    last = -1
    for one, other in zip(*turns, strict=False):
        if one[0] != other[0] or one[0] != last + 1 or not are_equal(one[2], other[2]):
            break
        last = one[0]
    return last


def _place_of(transform: Any, dataset: Any) -> str:
    """`file:line` of the dataset's class."""
    code = _code_of(innermost(dataset))
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code is not None else type(transform).__name__


# Lines of __getitem__ ------------------------------------------------------------------------------------------------


def _code_of(dataset: Any) -> CodeType | None:
    return getattr(getattr(type(dataset), "__getitem__", None), "__code__", None)


def _before_line(dataset: Any, indices: Sequence[int]) -> Cut | None:
    """The work before the first line of `__getitem__` that draws a random number; None without such a line."""
    code = _code_of(innermost(dataset))
    if code is None:
        return None
    lines = [_first_random_line(dataset, index, code) for index in indices[:NUM_CHECKED]]
    known = [line for line in lines if line is not None]
    if not known:
        return None
    line = min(known)
    needed = _names_from(code, line)
    values, part_s, all_s = [], 0.0, 0.0
    for index in indices:
        began = time.perf_counter()
        value, at = _LineStop(code, line, needed).run(dataset, index)
        if value is None:
            return None
        values.append(value)
        part_s += at - began
        all_s += time.perf_counter() - began
    if not any(map(len, values)):
        return None
    text = _line_text(code.co_filename, line)
    rest = _rest_of(innermost(dataset), line, sorted(set.intersection(*map(set, values))))
    rest_s = None
    with contextlib.suppress(Exception):  # statements of the user's that need more than the variables before the line
        rest_s = _usual_s(rest, values) if rest is not None else None
    return Cut(f"{Path(code.co_filename).name}:{line}", text, part_s / all_s, rest_s, values)


def _rest_of(dataset: Any, line: int, known: Sequence[str]) -> Callable[[dict[str, Any]], Any] | None:
    """The statements of `__getitem__` from a line on, as a function of the variables known before the line.

    None when the line lies within a loop or a condition, or when the source is out of sight.
    """
    method: Any = type(dataset).__getitem__
    try:
        lines, first = inspect.getsourcelines(method)
        [function] = ast.parse(textwrap.dedent("".join(lines))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    if not isinstance(function, ast.FunctionDef) or method.__closure__:
        return None
    at = next((n for n, each in enumerate(function.body) if each.lineno == line - first + 1), None)
    if at is None:
        return None
    own = [each.arg for each in function.args.args]
    function.args.args += [ast.arg(name) for name in known]
    function.args.defaults, function.decorator_list, function.returns = [], [], None
    function.body = function.body[at:]
    names: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(ast.Module([function], [])), "<rest>", "exec"), method.__globals__, names)
    rest = names[function.name]
    return lambda values: rest(dataset, *[0] * (len(own) - 1), **{name: values[name] for name in known})


def _first_random_line(dataset: Any, index: int, code: CodeType) -> int | None:
    """The first line of the function that changes a random state; None when no line does."""
    found: list[int] = []
    state = _random_state()
    current = [0]

    def check() -> None:
        nonlocal state
        new = _random_state()
        if new != state and current[0]:
            found.append(current[0])
        state = new

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        if event in ("line", "return"):
            check()
            current[0] = frame.f_lineno
        return local

    def start(frame: FrameType, event: str, argument: Any) -> Any:
        return local if frame.f_code is code else None

    before = sys.gettrace()
    sys.settrace(start)
    try:
        dataset[index]
    finally:
        sys.settrace(before)
    return found[0] if found else None


class _LineStop:
    """Notes the time and the local variables when a function first reaches a line."""

    def __init__(self, code: CodeType, line: int, needed: frozenset[str]) -> None:
        self._code, self._line, self._needed = code, line, needed
        self._at = 0.0
        self._values: dict[str, Any] | None = None

    def run(self, dataset: Any, index: int) -> tuple[dict[str, Any] | None, float]:
        """The needed variables before the line, and the time of the line."""
        before = sys.gettrace()
        sys.settrace(self._start)
        try:
            dataset[index]
        finally:
            sys.settrace(before)
        return self._values, self._at

    def _start(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._local if frame.f_code is self._code else None

    def _local(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and self._values is None and frame.f_lineno >= self._line:
            self._at = time.perf_counter()
            self._values = {name: frame.f_locals[name] for name in self._needed if name in frame.f_locals}
            return None
        return self._local


def _names_from(code: CodeType, line: int) -> frozenset[str]:
    """Local variables of the function that are read at or after a line, without `self` and the index."""
    import dis

    names: set[str] = set()
    at = 0
    for instruction in dis.get_instructions(code):
        at = getattr(instruction, "line_number", None) or instruction.starts_line or at
        if int(at) >= line and instruction.opname.startswith("LOAD_FAST") and instruction.argval is not None:
            found = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
            names.update(found)
    return frozenset(names) - set(code.co_varnames[: code.co_argcount])


def _line_text(file: str, line: int) -> str:
    try:
        return Path(file).read_text().splitlines()[line - 1].strip()
    except (OSError, IndexError, UnicodeDecodeError):
        return ""
