"""Packs a map-style dataset into few files, and reads the packed samples back.

The first use of `Packed` loads numpy; an import of the package loads nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.storage.packed import Packed

__all__ = ["Packed"]


def __getattr__(name: str) -> Any:
    if name != "Packed":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from autotune.storage.packed import Packed

    return Packed
