"""The service's HTTP protocol, with time limits for slow clients."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 15.0
"""Longest wait for the head of a request, in seconds, from the first byte or from the connection."""
READ_S = 30.0
"""Longest wait for a client to read, in seconds."""
MAX_CONNECTIONS = 2048
"""Connections at a time, for uvicorn's `limit_concurrency`; further requests get 503."""


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 of uvicorn with two more time limits.

    uvicorn waits forever for the head of a request, and for a client to read. `bodies` limits the body.
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
        """Ends the wait for a request after the answer."""
        self._stop_head_timer()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends both waits."""
        self._stop_head_timer()
        self._stop_read_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Starts the wait for the client to read."""
        super().pause_writing()
        self._stop_read_timer()
        self._read_timer = self.loop.call_later(READ_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Ends the wait for the client to read."""
        self._stop_read_timer()
        super().resume_writing()

    def _start_head_timer(self) -> None:
        self._stop_head_timer()
        self._head_timer = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
