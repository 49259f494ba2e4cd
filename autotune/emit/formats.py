"""The file formats of a tuned config: plain values to text and back."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.emit import yaml_format
from autotune.errors import ConfigError

MAX_TOML_DOTS = 5000
"""tomllib takes time in the square of a dotted key's parts (measured: 10 s for 20,000); a tuned config has some 200."""


@dataclass(frozen=True, slots=True)
class Format:
    """One file format."""

    parse: Callable[[str], Any]
    """Plain values of a text; ValueError or RecursionError for malformed text."""
    render: Callable[[Mapping[str, Any], Sequence[str]], str]
    """Text of plain values below comment lines (none in JSON); ValueError for values outside the format."""


def kind_of(path: Path) -> str:
    """The format meant by a path's suffix: `yaml`, `toml` or `json`.

    Raises:
        ConfigError: The suffix is none of these.
    """
    kind = {".yml": "yaml"}.get(path.suffix.lower(), path.suffix.lower().removeprefix("."))
    if kind not in FORMATS:
        raise ConfigError(f"{path} has no known suffix.", "A tuned config ends in .yaml, .toml or .json.")
    return kind


def _parse_json(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError(f"a key is there twice among {', '.join(sorted(values))[:200]}")
    return values


def _render_json(values: Mapping[str, Any], comments: Sequence[str]) -> str:
    return json.dumps(values, indent=2, allow_nan=False) + "\n"


def _parse_toml(text: str) -> dict[str, Any]:
    if text.count(".") > MAX_TOML_DOTS:
        raise ValueError("it has too many dots")
    return tomllib.loads(text)


def _render_toml(values: Mapping[str, Any], comments: Sequence[str]) -> str:
    import tomli_w  # here, since `autotune.load` of a YAML file needs no TOML

    return "".join(f"# {comment}\n" for comment in comments) + tomli_w.dumps(_toml_value(values))


def _toml_value(value: Any) -> Any:
    """The same value in TOML's own types. TOML has no null: keys without a value are left out."""
    if isinstance(value, Mapping):
        return {_toml_value(key): _toml_value(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_toml_value(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not finite")
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        raise ValueError(f"{value!r} is not valid Unicode")
    for plain in (bool, int, float, str):
        if isinstance(value, plain):  # Subclasses too: torch's version is a str.
            return plain(value)
    raise ValueError(f"{type(value).__name__} has no TOML form")


FORMATS: Mapping[str, Format] = {
    "yaml": Format(yaml_format.parse, yaml_format.render),
    "toml": Format(_parse_toml, _render_toml),
    "json": Format(_parse_json, _render_json),
}
"""Formats by suffix."""
