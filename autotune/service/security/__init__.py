"""The door of the service: tokens, hosts, origins, sizes and rates, as pure ASGI middleware."""

from __future__ import annotations

from fastapi import FastAPI

from autotune.service.service_settings import ServiceSettings


def protect(app: FastAPI, settings: ServiceSettings) -> None:
    """Wraps the application with all middleware of the door."""
