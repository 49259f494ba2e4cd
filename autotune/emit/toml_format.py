"""TOML of plain values: a writer, since the standard library only reads it. TOML has no null: None is left out."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}

MAX_DOTS = 5000
"""tomllib takes time in the square of a dotted key's parts (measured: 10 s for 20,000); a tuned config has some 200."""


def parse(text: str) -> dict[str, Any]:
    """Plain values of TOML text.

    Raises:
        ValueError: The text is malformed, or has more dots than a tuned config.
        RecursionError: It is nested too deeply.
    """
    if text.count(".") > MAX_DOTS:
        raise ValueError("it has too many dots")
    return tomllib.loads(text)


def render(values: Mapping[str, Any], comments: Sequence[str] = ()) -> str:
    """TOML text of plain values below comment lines.

    Raises:
        ValueError: A number is not finite, a text holds half of a surrogate pair, or a list holds None.
    """
    lines = [f"# {comment}" for comment in comments]
    _write_table(values, (), lines)
    return "\n".join(lines) + "\n"


def _write_table(values: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    """A table's own values first: what follows a sub-table's heading belongs to that."""
    tables = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    if path:
        lines.extend(["", f"[{'.'.join(map(_key, path))}]"])
    lines.extend(
        f"{_key(key)} = {_value(value)}" for key, value in values.items() if key not in tables and value is not None
    )
    for key, table in tables.items():
        _write_table(table, (*path, key), lines)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not finite")
        return float.__repr__(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, Mapping):
        pairs = (f"{_key(key)} = {_value(item)}" for key, item in value.items() if item is not None)
        return "{" + ", ".join(pairs) + "}"
    raise ValueError(f"{type(value).__name__} has no TOML form")


def _string(text: str) -> str:
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError(f"{text!r} is not valid Unicode")
    return '"' + "".join(_ESCAPES.get(char) or _character(char) for char in text) + '"'


def _character(char: str) -> str:
    return f"\\u{ord(char):04X}" if ord(char) < 0x20 or ord(char) == 0x7F else char
