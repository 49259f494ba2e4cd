"""YAML of plain values: written alike for every YAML reader, and read without YAML's surprises.

The reader is PyYAML's safe reader, made narrower. `no`, `on`, `1:30` and dates stay text, `1e-3` is a number (as in
YAML 1.2's core schema). Tags, aliases, merge keys, repeated keys, deep nesting and huge numbers of values are refused.
The writer quotes each text with another meaning in YAML 1.1 or 1.2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from autotune.protocol.codec import MAX_DEPTH

MAX_VALUES = 20_000
"""Keys, values and collections of one file; a tuned config has some hundreds."""

_TAG = "tag:yaml.org,2002:"
_SCALARS: tuple[tuple[str, str, str], ...] = (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
)
"""Kind, pattern and first characters of plain scalars other than text; the first match wins."""


class _Reader(yaml.SafeLoader):
    """PyYAML's safe loader, narrowed to the needs of a tuned config."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own name

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._num_values = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"line {line} has an alias (*{event.anchor})")
        if event.tag is not None:
            raise ValueError(f"line {line} has a tag ({event.tag})")
        self._depth += 1
        self._num_values += 1
        if self._depth > MAX_DEPTH or self._num_values > MAX_VALUES:
            raise ValueError("it is nested too deeply" if self._depth > MAX_DEPTH else "it holds too many values")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise ValueError(f"line {key_node.start_mark.line + 1} has a key that is no text")
            key = self.construct_object(key_node)
            if key in mapping:
                raise ValueError(f"line {key_node.start_mark.line + 1} has the key {key!r} a second time")
            mapping[key] = self.construct_object(value_node, deep=True)
        return mapping


class _Writer(yaml.SafeDumper):
    """PyYAML's safe dumper; lists on one line, mappings one key per line."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_list(writer: _Writer, values: list[Any]) -> yaml.Node:
    return writer.represent_sequence(_TAG + "seq", values, flow_style=True)


def _represent_text(writer: _Writer, text: str) -> yaml.Node:
    # PyYAML loses U+0085 and similar characters in single quotes, and escapes them in double quotes.
    return writer.represent_scalar(_TAG + "str", str(text), style=None if text.isprintable() else '"')


for _kind, _pattern, _first in _SCALARS:
    for _class in (_Reader, _Writer):
        _class.add_implicit_resolver(
            _TAG + _kind, re.compile(rf"(?:{_pattern})\Z"), ["" if char == "\0" else char for char in _first]
        )
_Reader.add_constructor(_TAG + "int", lambda _, node: int(node.value))
_Reader.add_constructor(_TAG + "float", lambda _, node: float(node.value))
_Writer.add_representer(list, _represent_list)
_Writer.add_representer(str, _represent_text)
# Subclasses are written as their base: torch's version is a str, numpy's float64 a float.
_Writer.add_multi_representer(str, _represent_text)
_Writer.add_multi_representer(float, lambda writer, value: writer.represent_float(float(value)))
_Writer.add_multi_representer(int, lambda writer, value: writer.represent_int(int(value)))


def parse(text: str) -> Any:
    """Plain values of YAML text.

    Raises:
        ValueError: The text is malformed, or uses a refused feature of YAML.
    """
    try:
        return yaml.load(text, Loader=_Reader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def render(values: Mapping[str, Any], comments: Sequence[str] = ()) -> str:
    """YAML text of plain values below comment lines, in the order of the mapping; an empty line around each section."""
    lines = [f"# {comment}" for comment in comments]
    was_section = bool(comments)
    for key, value in values.items():
        is_section = isinstance(value, Mapping)
        if is_section or was_section:
            lines.append("")
        was_section = is_section
        text = yaml.dump({key: value}, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=120)
        lines.append(text.rstrip("\n"))
    return "\n".join(lines) + "\n"
