"""The file formats of a tuned config: plain values to text and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.emit import toml_format, yaml_format
from autotune.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Format:
    """One file format."""

    parse: Callable[[str], Any]
    """Plain values of a text; raises ValueError or RecursionError when it is malformed."""
    render: Callable[[Mapping[str, Any], Sequence[str]], str]
    """Text of plain values below comment lines, where the format has comments; ValueError when it cannot say them."""


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


FORMATS: Mapping[str, Format] = {
    "yaml": Format(yaml_format.parse, yaml_format.render),
    "toml": Format(toml_format.parse, toml_format.render),
    "json": Format(_parse_json, _render_json),
}
"""By kind, which is also the suffix."""
