"""Style sheets, scripts and pictures of the pages, read once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain"}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file."""

    content: bytes
    media_type: str

    def address(self, name: str) -> str:
        """The path for browsers, which changes with the content: browsers keep the file for long."""
        return f"/assets/{name}?v={hashlib.sha256(self.content).hexdigest()[:10]}"


def _read() -> Iterator[tuple[str, Traversable]]:
    yield "report.css", files("autotune.report").joinpath("page.css")
    for item in files("autotune").joinpath("service", "pages", "static").iterdir():
        yield item.name, item


ASSETS = {
    name: Asset(item.read_bytes(), media_type)
    for name, item in _read()
    if (media_type := _TYPES.get(f".{name.rpartition('.')[2]}")) is not None
}
"""Files by name; no other file can be asked for."""
