"""What a browser holds: a one-time token in the printed URL, then a signed session cookie."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import replace

from autotune.service.security.tokens import Caller, TokenBook

ONE_TIME_SECONDS = 3600.0
"""Life of a one-time token that nobody uses."""
SESSION_SECONDS = 7 * 86400
MAX_ONE_TIME = 64
"""Most one-time tokens waiting for their browser; the oldest goes first."""


class OneTimeTokens:
    """Tokens valid for one exchange each, kept as digests in memory.

    Args:
        clock: Seconds on a clock that never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: dict[bytes, tuple[float, Caller]] = {}

    def issue(self, caller: Caller) -> str:
        """A fresh token that makes its bearer the caller, once."""
        token = secrets.token_urlsafe(32)
        while len(self._waiting) >= MAX_ONE_TIME:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[_digest(token)] = (self._clock() + ONE_TIME_SECONDS, caller)
        return token

    def redeem(self, token: str) -> Caller | None:
        """The caller of an unused token, which is used up; None for a used, late or unknown token."""
        until, caller = self._waiting.pop(_digest(token), (0.0, None))
        return caller if self._clock() < until else None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


class Sessions:
    """Session cookies: signed, without state, and so valid on every server with the same tokens.

    Args:
        book: The tokens; a token taken away ends its sessions.
        clock: Seconds since 1970.
    """

    def __init__(self, book: TokenBook, clock: Callable[[], float] = time.time) -> None:
        self._book, self._key, self._clock = book, book.session_key(), clock

    def start(self, caller: Caller) -> str:
        """The value of a cookie for the caller."""
        content = f"{caller.name}.{int(self._clock()) + SESSION_SECONDS}.{secrets.token_urlsafe(9)}"
        return f"{content}.{self._signature(content)}"

    def caller_of(self, cookie: str) -> Caller | None:
        """The caller of a cookie; None for a forged, late or withdrawn cookie."""
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
    """The cookie's name for a Host header: browsers share cookies between the ports of a host, so the port is in it."""
    _, _, port = host.rpartition(":")
    return f"autotune-{port}" if port.isdigit() else "autotune"
