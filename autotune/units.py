"""Bytes, seconds and rates: read from text and written for people, in one place.

Inside the program everything is in base units: bytes, seconds, samples per second. GiB is 1024^3 bytes.
"""

from __future__ import annotations

import math
import re

from autotune.errors import UsageError

KIB = 1024
MIB = 1024**2
GIB = 1024**3

_BYTE_UNITS = {
    "": 1,
    "b": 1,
    "k": KIB,
    "kib": KIB,
    "kb": 1000,
    "m": MIB,
    "mib": MIB,
    "mb": 1000**2,
    "g": GIB,
    "gib": GIB,
    "gb": 1000**3,
    "t": 1024**4,
    "tib": 1024**4,
    "tb": 1000**4,
}
_SECOND_UNITS = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
MOST_UNEVEN = 100.0
"""Largest ratio of an interval's ends that is shown in figures; a wider interval says nothing."""
_QUANTITIES = re.compile(r"[^A-Za-z]+[A-Za-z]*")
_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*")


def parse_bytes(text: str) -> int:
    """Bytes meant by text such as `16GiB`, `512 MiB` or `1000000`.

    Raises:
        UsageError: The text is not a positive number with a known unit.
    """
    value = _parse_quantity(text, {unit: float(size) for unit, size in _BYTE_UNITS.items()})
    if value is None or value < 1:
        raise UsageError(f"{text!r} is not an amount of memory.", "Write it like 16GiB or 900MiB.")
    return int(value)


def parse_memory_cap(text: str, total_bytes: int) -> int:
    """Bytes meant by an amount (`16GiB`) or by a percentage of the device's total (`80%`).

    Args:
        text: The amount or the percentage, above 0 % and at most 100 %.
        total_bytes: Memory of the device, 100 %.

    Raises:
        UsageError: The text is neither.
    """
    stripped = text.strip()
    if not stripped.endswith("%"):
        return parse_bytes(stripped)
    share = _parse_quantity(stripped[:-1], {"": 1.0})
    if share is None or not 0 < share <= 100:
        raise UsageError(f"{text!r} is not a share of the device's memory.", "Write it like 80%, at most 100%.")
    return int(total_bytes * share / 100)


def parse_seconds(text: str) -> float:
    """Seconds meant by text such as `90s`, `15m`, `1.5h`, `1h30m` or `90`.

    Raises:
        UsageError: The text is not a positive time.
    """
    parts = _QUANTITIES.findall(text)
    units = {unit: size for unit, size in _SECOND_UNITS.items() if unit or len(parts) == 1}
    values = [_parse_quantity(part, units) for part in parts]
    value = sum(value or 0.0 for value in values)
    if "".join(parts) != text or None in values or value <= 0:
        raise UsageError(f"{text!r} is not a time.", "Write it like 90s, 15m or 1h30m.")
    return value


def _parse_quantity(text: str, units: dict[str, float]) -> float | None:
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None or match[2].lower() not in units:
        return None
    return float(match[1]) * units[match[2].lower()]


def format_bytes(num_bytes: float) -> str:
    """Bytes for people, in the largest binary unit with a value of at least 1: `11.2 GiB`."""
    for size, name in ((1024**4, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(num_bytes) >= size:
            return f"{num_bytes / size:.1f} {name}"
    return f"{num_bytes:.0f} B"


def format_interval(low: float, high: float) -> str:
    """A rate's interval for people: `[3,097, 3,140]`; for a useless interval the words `[too uneven to say]`."""
    return f"[{format_rate(low)}, {format_rate(high)}]" if high <= MOST_UNEVEN * low else "[too uneven to say]"


def format_seconds(seconds: float) -> str:
    """Seconds for people: `0.4 s`, `42 s`, `4 min 10 s`, `1 h 2 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def format_minutes(seconds: float) -> str:
    """Seconds as a value of `--time`, rounded up to half minutes: `2.5m`."""
    return f"{math.ceil(seconds / 30) / 2:g}m"


def format_age(seconds: float) -> str:
    """A past time for people, in one unit: `42 s`, `12 min`, `5 h`, `3 d`."""
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {name}"
    return f"{max(0.0, seconds):.0f} s"


def format_rate(per_second: float) -> str:
    """A rate for people with three or four significant digits: `3,118`, `87.3`, `0.412`."""
    if per_second >= 1000:
        return f"{per_second:,.0f}"
    if per_second >= 100:
        return f"{per_second:.0f}"
    if per_second >= 10:
        return f"{per_second:.1f}"
    return f"{per_second:.3g}"
