"""The tokens of a service, with their rights and names."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from autotune.errors import UsageError

_TOKEN = re.compile(r"[\x21-\x7e]{32,512}")
"""Guessing 32 random characters is hopeless at any rate of requests."""


class Role(StrEnum):
    """The rights of a token."""

    FULL = "full"
    """Reads and changes everything, and may run workers."""
    READ_ONLY = "read-only"
    """Reads everything, and changes nothing."""
    WORKER = "worker"
    """Leases jobs and tells results; neither reads nor submits jobs."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody with a valid token."""

    name: str
    """Role and a part of the token's digest, for the audit log; never the token."""
    role: Role
    by_cookie: bool = False
    """The request came with a session cookie, so a browser may have sent the request for a foreign page."""

    @property
    def may_change(self) -> bool:
        """Whether the caller may submit and steer jobs."""
        return self.role is Role.FULL


class TokenBook:
    """Valid tokens of a service, compared in constant time.

    Args:
        token: The token with full rights; empty = nobody has full rights.
        read_only: Tokens for reading alone.
        workers: Tokens for workers alone.

    Raises:
        UsageError: A token is too short, or has blanks or control characters.
    """

    def __init__(self, token: str, read_only: Iterable[str] = (), workers: Iterable[str] = ()) -> None:
        self._callers: dict[bytes, Caller] = {}
        given = {Role.FULL: (token,) if token else (), Role.READ_ONLY: read_only, Role.WORKER: workers}
        for role, text in ((role, text) for role, texts in given.items() for text in texts):
            if not _TOKEN.fullmatch(text):  # without the text, which may be a secret after all
                raise UsageError(
                    "A token of the service is too short, or has blanks.",
                    "A token has 32 or more characters; remove the token file, and a good one is made.",
                )
            digest = hashlib.sha256(text.encode()).hexdigest()[:8]
            if text.encode() in self._callers:
                raise UsageError("Two token files of the service hold the same token.", "Remove one; it is made anew.")
            self._callers[text.encode()] = Caller(f"{role}-{digest}", role)

    def caller_of(self, token: str) -> Caller | None:
        """The owner of a token; None for an unknown token."""
        given = token.encode("utf-8", "surrogateescape")
        found: Caller | None = None
        for known, caller in self._callers.items():  # all of them, so that the time tells nothing about a match
            if hmac.compare_digest(known, given):
                found = caller
        return found

    def named(self, name: str) -> Caller | None:
        """The owner with the name; None for a token no longer in use."""
        return next((caller for caller in self._callers.values() if caller.name == name), None)

    def owner(self) -> Caller | None:
        """The caller with the most rights among callers with a page; None without tokens for pages."""
        return next((caller for caller in self._callers.values() if caller.role is not Role.WORKER), None)

    def session_key(self) -> bytes:
        """A key for signing sessions; a change of any token ends all sessions."""
        return hashlib.sha256(b"\n".join((b"autotune session", *self._callers))).digest()
