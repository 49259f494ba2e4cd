"""Runs the server with its worker: binds the address, tells the URL once, and ends gracefully on SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from autotune.errors import HostError
from autotune.service.app import create_app
from autotune.service.local_worker import LocalWorker
from autotune.service.security.slow_clients import MAX_CONNECTIONS, BoundedProtocol
from autotune.service.service_settings import ServiceSettings

SHUTDOWN_S = 3
"""Longest time for open requests after SIGTERM, in seconds."""
LAST_S = 10.0
"""Longest time from the worker's end to the server's end, in seconds; only a database without an answer takes it."""
LAST_FORCED_S = 2.0
"""As `LAST_S`, after a second signal."""
_log = logging.getLogger("autotune.service")


def serve(
    settings: ServiceSettings,
    port: int,
    *,
    on_listening: Callable[[FastAPI, str], None],
    worker_of: Callable[[str], LocalWorker] | None,
) -> None:
    """Serves until SIGTERM or SIGINT.

    Args:
        settings: The server's settings.
        port: Port to listen on; 0 = any free port.
        on_listening: Called once with the application and the base URL, as soon as the address is bound.
        worker_of: Makes the worker of this machine from the base URL; None = no worker.

    Raises:
        HostError: The address is in use or does not exist.
    """
    listener = _bound(settings.host, port)
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxy),
        forwarded_allow_ips=settings.trusted_proxy,
        http=BoundedProtocol,
        ws="none",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    url = _base_url(settings.host, listener.getsockname()[1])
    on_listening(app, url)
    with listener:
        _Server(config, app, worker_of(url) if worker_of is not None else None).run(sockets=[listener])


class _Server(uvicorn.Server):
    """A server that drains its worker before it stops listening."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, worker: LocalWorker | None) -> None:
        super().__init__(config)
        self._app, self._worker = app, worker
        self._is_ending = False
        self._tasks: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to serve, and starts the worker."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self._worker is not None and not self.should_exit:
            self._tasks.append(asyncio.create_task(self._worker.keep_running()))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ends gracefully at the first signal, and at once at the second."""
        if self._is_ending:
            if self._worker is not None:
                self._worker.kill()
            self.force_exit = self.should_exit = True
            _end_within(LAST_FORCED_S)
            return
        self._is_ending = True
        self._loop.call_soon_threadsafe(lambda: self._tasks.append(asyncio.create_task(self._end())))

    async def _end(self) -> None:
        if self._worker is not None:
            await self._worker.drain()
        self._app.state.hub.close()
        self.should_exit = True
        _end_within(LAST_S)


def _end_within(seconds: float) -> None:
    """Ends this process after the time, since a thread that waits for a database cannot be ended."""

    def leave() -> None:
        _log.warning("The server ends without waiting further for the database.")
        os._exit(0)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(512)
    except (OSError, OverflowError) as error:
        raise HostError(f"The address {host} port {port} cannot be bound: {error}.", "Choose another port.") from error
    return listener


def _base_url(host: str, port: int) -> str:
    # Every address of the machine: the URL names the one that always works here.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"
