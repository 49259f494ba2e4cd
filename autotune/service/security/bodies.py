"""Reads request bodies within bounds of size and time."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope

MAX_BODY_BYTES = 4 << 20
"""Largest document of a worker: a trial with its blocks and the tail of its log stays under 2 MiB."""
MAX_SIGN_IN_BYTES = 4096
BODY_S = 20.0
"""Longest wait for a whole body."""


class BodyTooLargeError(Exception):
    """The body is larger than allowed."""


class SlowBodyError(Exception):
    """The body did not arrive in time."""


class ClientGoneError(Exception):
    """The client left before the end of the body."""


async def bounded(scope: Scope, receive: Receive, max_bytes: int, seconds: float = BODY_S) -> Receive:
    """A `receive` that replays the whole body and then waits for the client's departure.

    Raises:
        BodyTooLargeError: The body has more than `max_bytes`.
        SlowBodyError: The body took more than `seconds`.
        ClientGoneError: The client left.
    """
    declared = [value for name, value in scope["headers"] if name == b"content-length"]
    if any(not value.isdigit() or int(value) > max_bytes for value in declared):
        raise BodyTooLargeError
    try:
        async with asyncio.timeout(seconds):
            body = await _whole_body(receive, max_bytes)
    except TimeoutError:
        raise SlowBodyError from None
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


async def _whole_body(receive: Receive, max_bytes: int) -> bytes:
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        body += message.get("body", b"")
        if len(body) > max_bytes:
            raise BodyTooLargeError
        more = message.get("more_body", False)
    return bytes(body)
