"""Asks an ASGI application directly, with every header and every byte in the hands of the test."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field


@dataclass
class Answer:
    """One complete answer."""

    status: int
    headers: dict[str, str]
    body: bytes
    cookies: list[str] = field(default_factory=list)

    @property
    def text(self):
        return self.body.decode()

    @property
    def json(self):
        return json.loads(self.body)


def ask(app, method="GET", target="/", headers=(), body=b"", *, client=("127.0.0.1", 50000), messages=None):
    """The answer to one request; `messages` replace the body as the ASGI messages to receive."""
    path, _, query = target.partition("?")
    sent = list(headers.items()) if isinstance(headers, dict) else list(headers)
    if not any(name.lower() == "host" for name, _ in sent):
        sent.append(("host", "127.0.0.1:8642"))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [
            (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in sent if value is not None
        ],
        "client": client,
        "server": ("127.0.0.1", 8642),
        "state": {},
    }
    waiting = list(messages) if messages is not None else [{"type": "http.request", "body": body, "more_body": False}]
    got = []

    async def receive():
        if not waiting:
            await asyncio.Event().wait()
        message = waiting.pop(0)
        return await message() if callable(message) else message

    async def send(message):
        got.append(message)

    asyncio.run(asyncio.wait_for(app(scope, receive, send), 20))
    if not got:
        return None
    pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in got[0]["headers"]]
    return Answer(
        got[0]["status"],
        dict(pairs),
        b"".join(message.get("body", b"") for message in got[1:]),
        [value for name, value in pairs if name == "set-cookie"],
    )
