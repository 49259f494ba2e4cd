"""What no figure of a report can be: a report comes from the user's process, and a database must be able to keep it."""

from __future__ import annotations

import dataclasses
from typing import Any

MAX_COUNT = (1 << 63) - 1
"""The largest integer that every database keeps. Datasets without an end do say that they are that long."""
MAX_BYTES = 1 << 50
"""A pebibyte: more than any machine has, and sums of it are still integers that every database keeps."""
MAX_SECONDS = 1e9


def check_figures(value: Any) -> None:
    """Looks at the figures among the fields of a dataclass, by the unit in their names.

    Raises:
        ValueError: A count, an amount of bytes or a time is negative or absurd.
    """
    for field in dataclasses.fields(value):
        figure = getattr(value, field.name)
        if isinstance(figure, bool) or not isinstance(figure, (int, float)):
            continue
        if field.name.endswith("_s"):
            limit: float = MAX_SECONDS
        elif isinstance(figure, float):
            continue
        else:
            limit = MAX_BYTES if field.name.endswith("_bytes") else MAX_COUNT
        if not 0 <= figure <= limit:
            raise ValueError(f"{field.name} cannot be {figure!r:.40}")
