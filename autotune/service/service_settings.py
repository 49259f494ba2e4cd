"""The settings of one server, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_HOST = "127.0.0.1"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceSettings:
    """Everything that `create_app` needs to know."""

    storage: str
    """Resolved URL of the database, secrets included; show the URL through `mask_url`."""
    projects: Mapping[str, Path]
    """Absolute folders of the registered projects, by name."""
    token: str
    """The full token. Empty = no request is let in."""
    read_only_tokens: tuple[str, ...] = ()
    """Tokens for reading alone."""
    worker_tokens: tuple[str, ...] = ()
    """Tokens for workers alone."""
    host: str = DEFAULT_HOST
    """Address to listen on."""
    allowed_hosts: tuple[str, ...] = ()
    """Further legal names in the header Host, beside the names of this machine's loopback and `host`."""
    trusted_proxy: str = ""
    """Address of a reverse proxy with trusted X-Forwarded headers; empty = none."""
    audit_log: Path | None = None
    """File of the audit log; None = no audit log."""
    lease_ttl_s: float = field(default=30.0)
    """Time without a heartbeat after which a lease is lost, in seconds."""
