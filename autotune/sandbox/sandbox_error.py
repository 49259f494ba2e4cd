"""Errors of the sandbox for people."""

from __future__ import annotations


class SandboxError(Exception):
    """The machine cannot give the protection for a search.

    Args:
        message: Names the thing and the value, in a single sentence.
        hint: The remedy, in a single sentence.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.message, self.hint = message, hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}"


class NoSuchPlaceError(SandboxError):
    """A place for real writes does not exist."""
