"""Turns dataclasses and named tuples into JSON and back, with a check of every field.

A trial's files come from the user's process and are not trusted: every value is checked against the annotation before
an object is built. Messages of a supervisor are named tuples: importing `dataclasses` would double the time of a
supervisor's imports, so the codec imports `dataclasses` for dataclasses alone.
"""

from __future__ import annotations

import functools
import json
import math
import reprlib
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from autotune.errors import AutotuneError

T = TypeVar("T")

EXACT = frozenset({bool, int, str})
"""Types whose values need no further check. Most values have such a type."""
MAX_DEPTH = 24
"""More levels than any data of ours has; reading a hostile file ends here."""


def encode(value: Any) -> str:
    """The value as JSON in ASCII.

    Raises:
        TypeError: A part of the value has no plain form.
    """
    return json.dumps(to_plain(value))


def decode(kind: type[T], text: str | bytes) -> T:
    """An object of the dataclass or named tuple `kind` from JSON.

    Raises:
        ValueError: The text is no JSON, or a value does not fit its annotation.
    """
    try:
        return from_plain(kind, json.loads(text))
    except RecursionError as error:
        raise ValueError("the text is nested too deeply") from error


def to_plain(value: Any) -> Any:
    """The value as lists, dicts with string keys, strings, numbers, booleans and None; ready for json.dumps.

    Raises:
        TypeError: A part of the value has no plain form.
    """
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return value
    if hasattr(value, "to_dict"):
        return to_plain(value.to_dict())
    kind: Any = type(value)
    if _has_fields(kind):
        return {name: to_plain(getattr(value, name)) for name in _fields(kind)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no plain form")


def from_plain(kind: type[T], value: Any) -> T:
    """An object of the dataclass or named tuple `kind` from plain values.

    Unknown fields are refused; missing fields get the default.

    Raises:
        ValueError: A value does not fit the annotation, or the object's own checks refuse the value.
    """
    try:
        return typing.cast("T", _build(kind, value, kind.__name__, 0))
    except (TypeError, OverflowError, RecursionError, AutotuneError) as error:
        raise ValueError(str(error)) from error


def _build(annotation: Any, value: Any, where: str, depth: int) -> Any:
    if annotation in EXACT and type(value) is annotation:
        return value
    if depth > MAX_DEPTH:
        raise ValueError(f"{where} is nested too deeply")
    origin = _origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return _build_union(annotation, value, where, depth)
    if origin is tuple:
        return _build_tuple(annotation, value, where, depth)
    if origin is not None and issubclass(origin, Mapping):
        return _build_mapping(annotation, value, where, depth)
    if _has_fields(annotation):
        return _build_object(annotation, value, where, depth)
    return _build_scalar(annotation, value, where)


def _build_union(annotation: Any, value: Any, where: str, depth: int) -> Any:
    errors = []
    for option in _arguments(annotation):
        if option is type(None):
            if value is None:
                return None
            continue
        try:
            return _build(option, value, where, depth + 1)
        except (ValueError, TypeError, AutotuneError) as error:
            errors.append(str(error))
    raise ValueError("; ".join(errors) or f"{where} must be null")


def _build_tuple(annotation: Any, value: Any, where: str, depth: int) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{where} must be a list, not {type(value).__name__}")
    items = _arguments(annotation)
    if len(items) == 2 and items[1] is Ellipsis:
        return tuple(_build(items[0], item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value))
    if len(items) != len(value):
        raise ValueError(f"{where} must have {len(items)} items, not {len(value)}")
    pairs = enumerate(zip(items, value, strict=True))
    return tuple(_build(kind, item, f"{where}[{i}]", depth + 1) for i, (kind, item) in pairs)


def _build_mapping(annotation: Any, value: Any, where: str, depth: int) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{where} must be a mapping with string keys")
    _, kind = _arguments(annotation)
    return {key: _build(kind, item, f"{where}.{key}", depth + 1) for key, item in value.items()}


def _build_object(kind: Any, value: Any, where: str, depth: int) -> Any:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} must be a mapping, not {type(value).__name__}")
    fields = _fields(kind)
    unknown = sorted(str(key) for key in value if key not in fields)
    if unknown:
        raise ValueError(f"{where} has no field {unknown[0]!r}")
    if hasattr(kind, "from_dict"):
        return kind.from_dict(value)
    hints = _hints(kind)
    built = {name: _build(hints[name], item, f"{where}.{name}", depth + 1) for name, item in value.items()}
    missing = [name for name, is_required in fields.items() if is_required and name not in value]
    if missing:
        raise ValueError(f"{where} lacks {', '.join(missing)}")
    return kind(**built)


def _build_scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(value)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{where} must be {kind.__name__}, not {reprlib.repr(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} must be finite")
    return value


@functools.cache
def _has_fields(kind: Any) -> bool:
    """Whether a type is a dataclass or a named tuple."""
    return hasattr(kind, "__dataclass_fields__") or (hasattr(kind, "_fields") and issubclass(kind, tuple))


@functools.cache
def _fields(kind: Any) -> Mapping[str, bool]:
    """Fields of a dataclass or named tuple, each with whether a value is required."""
    if issubclass(kind, tuple):
        return {name: name not in kind._field_defaults for name in kind._fields}
    from dataclasses import MISSING, fields

    return {
        field.name: field.default is MISSING and field.default_factory is MISSING
        for field in fields(kind)
        if field.init
    }


@functools.cache
def _hints(kind: Any) -> Mapping[str, Any]:
    """Annotations by field."""
    return typing.get_type_hints(kind)


def _arguments(annotation: Any) -> tuple[Any, ...]:
    # No cache: `int | float` equals `float | int`, and the first option that fits wins.
    arguments: tuple[Any, ...] = annotation.__args__
    return arguments


@functools.cache
def _origin(annotation: Any) -> Any:
    return typing.get_origin(annotation)
