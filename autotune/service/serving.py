"""Runs the server: binds the address, prints the URL once, and ends gracefully on SIGTERM."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from autotune.errors import HostError
from autotune.service.app import create_app
from autotune.service.service_settings import ServiceSettings

SHUTDOWN_S = 5
"""Longest time for open requests after SIGTERM, in seconds."""


def serve(settings: ServiceSettings, port: int, *, on_listening: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT.

    Args:
        settings: The server's settings.
        port: Port to listen on; 0 = any free port.
        on_listening: Called once with the base URL, as soon as the address is bound.

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
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    on_listening(_base_url(settings.host, listener.getsockname()[1]))
    with listener:
        uvicorn.Server(config).run(sockets=[listener])


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
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"
