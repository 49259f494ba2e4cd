"""Compares releases of libraries, for settings that older releases lack."""

from __future__ import annotations


def is_before(version: str, release: tuple[int, int]) -> bool:
    """True when a version such as `2.4.1` is older than a release (major, minor); False for one without numbers."""
    numbers = version.split(".")[:2]
    return all(number.isdigit() for number in numbers) and tuple(map(int, numbers)) < release
