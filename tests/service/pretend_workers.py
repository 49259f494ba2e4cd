"""Workers of the tests that speak to the API themselves and run nothing."""

from __future__ import annotations

import uuid
from typing import Any

from autotune.client.connection import Connection


class PretendWorker:
    """One registered worker."""

    def __init__(self, api: Connection, name: str = "", **values: Any) -> None:
        self.api, self.name = api, name or f"w-{uuid.uuid4().hex[:8]}"
        self.session = uuid.uuid4().hex
        body = {
            "id": self.name,
            "session": self.session,
            "machine": f"machine-of-{self.name}",
            "class": "big",
            "projects": {"demo": "/srv/demo"},
            "cpus": [0, 1],
            **values,
        }
        self.document = api.json("POST", "/v1/workers", body)
        self.lease_document: dict[str, Any] = {}

    def lease(self, wait_s: float = 0.0) -> dict[str, Any]:
        """The lease; empty without work."""
        body = {"session": self.session, "wait_s": wait_s}
        self.lease_document = self.api.json("POST", f"/v1/workers/{self.name}:lease", body)
        return self.lease_document

    def beat(self, *events: dict[str, Any], first: int = 0, progress: Any = None, **values: Any) -> dict[str, Any]:
        """The answer to a heartbeat."""
        held = self.lease_document
        body = {"fence": held["fence"], "first_event": first, "events": list(events), "progress": progress, **values}
        return self.api.json("POST", f"/v1/leases/{held['lease']}:heartbeat", body)

    def complete(self, state: str = "done", **values: Any) -> dict[str, Any]:
        """The answer to the end of the search."""
        held = self.lease_document
        body = {"fence": held["fence"], "state": state, "exit_code": 0, **values}
        return self.api.json("POST", f"/v1/leases/{held['lease']}:complete", body)
