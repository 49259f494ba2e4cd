"""Situations of a whole search or of a command, each with the test that holds it."""

from __future__ import annotations

ELSEWHERE: tuple[tuple[str, str], ...] = ()
"""Pairs of a situation and a test."""
