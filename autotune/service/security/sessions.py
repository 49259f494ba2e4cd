"""The door for browsers: a one-time token in the printed URL, then a signed session cookie."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import replace

from autotune.service.security.tokens import Caller, TokenBook

ONE_TIME_S = 3600.0
"""Life of an unused one-time token, in seconds."""
SESSION_S = 7 * 86400
"""Life of a session, in seconds."""
MAX_ONE_TIME = 64
"""Most unused one-time tokens; a further token replaces the oldest."""


class OneTimeTokens:
    """Tokens valid for one exchange each, kept as digests in memory.

    Args:
        clock: A monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: dict[bytes, tuple[float, Caller]] = {}

    def issue(self, caller: Caller) -> str:
        """A fresh token, valid once, with the rights of the caller."""
        token = secrets.token_urlsafe(32)
        while len(self._waiting) >= MAX_ONE_TIME:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[_digest(token)] = (self._clock() + ONE_TIME_S, caller)
        return token

    def redeem(self, token: str) -> Caller | None:
        """The caller of a token, valid no longer afterwards; None for a used, expired or unknown token."""
        until, caller = self._waiting.pop(_digest(token), (0.0, None))
        return caller if self._clock() < until else None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class Sessions:
    """Session cookies. Cookies are signed, and the server keeps no state: any server with the same tokens accepts them.

    Args:
        book: The tokens; removing a token ends the sessions of the token.
        clock: Seconds since 1970.
    """

    def __init__(self, book: TokenBook, clock: Callable[[], float] = time.time) -> None:
        self._book, self._key, self._clock = book, book.session_key(), clock

    def start(self, caller: Caller) -> str:
        """The value of a cookie for the caller."""
        content = f"{caller.name}.{int(self._clock()) + SESSION_S}.{secrets.token_urlsafe(9)}"
        return f"{content}.{self._signature(content)}"

    def caller_of(self, cookie: str) -> Caller | None:
        """The caller of a cookie; None for a forged or expired cookie, and after the removal of the token."""
        content, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(self._signature(content).encode(), signature.encode("utf-8", "surrogateescape")):
            return None
        name, until, _ = content.split(".")
        if self._clock() >= int(until):
            return None
        caller = self._book.named(name)
        return None if caller is None else replace(caller, by_cookie=True)

    def _signature(self, content: str) -> str:
        digest = hmac.new(self._key, content.encode("utf-8", "surrogateescape"), hashlib.sha256).digest()
        return urlsafe_b64encode(digest).rstrip(b"=").decode()


def cookie_name(host: str) -> str:
    """The cookie's name for a Host header. The name has the port, since browsers share cookies between ports."""
    _, _, port = host.rpartition(":")
    return f"autotune-{port}" if port.isdigit() else "autotune"
