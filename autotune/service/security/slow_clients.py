"""The service's HTTP protocol: a client that neither sends nor reads is disconnected."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 15.0
"""Longest wait for the head of a request, from its first byte or from the connection."""
READ_SECONDS = 30.0
"""Longest time without the client taking what we send."""
MAX_CONNECTIONS = 2048
"""Connections at a time, for uvicorn's `limit_concurrency`; further requests get 503."""


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 of uvicorn with two more time limits.

    uvicorn itself waits forever for the head of a request, and for a client that stops reading. The body has its
    limit in `bodies`.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the wait for the first request."""
        super().connection_made(transport)
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        """Starts the wait for the rest of a further request."""
        if self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._start_head_timer()
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_head_timer()

    def on_response_complete(self) -> None:
        """Ends a wait that began with a request whose answer is complete."""
        self._stop_head_timer()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends both waits."""
        self._stop_head_timer()
        self._stop_read_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Starts the wait for a client that does not read."""
        super().pause_writing()
        self._stop_read_timer()
        self._read_timer = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Ends the wait: the client reads again."""
        self._stop_read_timer()
        super().resume_writing()

    def _start_head_timer(self) -> None:
        self._stop_head_timer()
        self._head_timer = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
