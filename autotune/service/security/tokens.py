"""The tokens of a service, with their rights and names."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass

from autotune.errors import UsageError

_TOKEN = re.compile(r"[\x21-\x7e]{32,512}")
"""Guessing 32 random characters is hopeless at any rate of requests."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody with a valid token."""

    name: str
    """Rights and a part of the token's digest, for the audit log; never the token."""
    may_change: bool
    """False for a read-only token."""
    by_cookie: bool = False
    """The request came with a session cookie, so a browser may have sent the request for a foreign page."""


class TokenBook:
    """Valid tokens of a service, compared in constant time.

    Args:
        token: The token with full rights; empty = nobody has full rights.
        read_only: Tokens for reading alone.

    Raises:
        UsageError: A token is too short, or has blanks or control characters.
    """

    def __init__(self, token: str, read_only: Iterable[str] = ()) -> None:
        self._callers: dict[bytes, Caller] = {}
        for text, may_change in (*((token, True) for _ in token[:1]), *((other, False) for other in read_only)):
            if not _TOKEN.fullmatch(text):  # without the text, which may be a secret after all
                raise UsageError(
                    "A token of the service is too short, or has blanks.",
                    "A token has 32 or more characters; remove the token file, and a good one is made.",
                )
            digest = hashlib.sha256(text.encode()).hexdigest()[:8]
            self._callers[text.encode()] = Caller(f"{'full' if may_change else 'read-only'}-{digest}", may_change)

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
        """The first caller with the most rights; None without tokens."""
        return next(iter(self._callers.values()), None)

    def session_key(self) -> bytes:
        """A key for signing sessions; a change of any token ends all sessions."""
        return hashlib.sha256(b"\n".join((b"autotune session", *self._callers))).digest()
