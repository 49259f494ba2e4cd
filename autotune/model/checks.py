"""Limits of the figures in a report, which comes from the user's process and must fit into a database."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any

MAX_COUNT = (1 << 63) - 1
"""The largest integer stored by every database. Datasets without an end report this length."""
MAX_BYTES = 1 << 50
"""A pebibyte: more than any machine has, and sums still fit into every database's integers."""
MAX_SECONDS = 1e9
MAX_RATE = 1e18
"""Of anything per second: more than any memory moves or any device computes, and a finite number."""


def check_figures(value: Any) -> None:
    """Checks the figures among a dataclass's fields, by the unit in their names.

    Raises:
        ValueError: When a count, an amount of bytes, a time or a rate per second is negative or absurd.
    """
    for field in dataclasses.fields(value):
        figure = getattr(value, field.name)
        if isinstance(figure, bool) or not isinstance(figure, (int, float)):
            continue
        if field.name.endswith("_per_s"):
            limit: float = MAX_RATE
        elif field.name.endswith("_s"):
            limit = MAX_SECONDS
        elif isinstance(figure, float):
            continue
        else:
            limit = MAX_BYTES if field.name.endswith("_bytes") else MAX_COUNT
        if not 0 <= figure <= limit:
            raise ValueError(f"{field.name} cannot be {figure!r:.40}")


def check_aware(name: str, moment: datetime) -> None:
    """Refuses a moment without a time zone.

    Raises:
        ValueError: The moment has no time zone.
    """
    if moment.tzinfo is None:
        raise ValueError(f"{name} {moment} has no time zone")
