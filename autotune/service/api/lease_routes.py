"""`/v1/leases`: signs of life with events, and the end of a search."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from autotune.service.api.wiring import Queue, TheHub
from autotune.service.documents import SCHEMA
from autotune.service.problems import Problem
from autotune.store.job_records import Heartbeat, LeaseEnd, LeaseState
from autotune.store.rows import to_json

router = APIRouter(prefix="/v1/leases", tags=["workers"])
MAX_EVENTS = 1000
MAX_DOCUMENT = 1 << 20
MAX_TEXT = 20_000
Fence = Annotated[int, Field(ge=0, le=(1 << 31) - 1)]
Document = dict[str, Any]


class HeartbeatBody(BaseModel):
    """A sign of life, with new events of the search."""

    model_config = ConfigDict(extra="forbid")

    fence: Fence
    first_event: Annotated[int, Field(ge=0, le=(1 << 31) - 1)] = 0
    events: list[Document] = Field(default_factory=list, max_length=MAX_EVENTS)
    progress: Document | None = None


class CompleteBody(BaseModel):
    """The end of a search."""

    model_config = ConfigDict(extra="forbid")

    fence: Fence
    state: Literal["done", "stopped", "failed"]
    exit_code: Annotated[int, Field(ge=-64, le=255)] | None = None
    message: Annotated[str, Field(max_length=MAX_TEXT)] = ""
    is_repeatable: bool = False
    document: Document | None = None
    config: Annotated[str, Field(max_length=MAX_DOCUMENT)] | None = None


@router.post("/{lease_id}:heartbeat")
async def heartbeat(lease_id: str, body: HeartbeatBody, hub: TheHub) -> dict[str, Any]:
    """The order for the worker: `continue`, `stop` after the running trial, or `cancel` at once."""
    beat = Heartbeat(
        lease_id=lease_id,
        fence=body.fence,
        first_event=body.first_event,
        new_events=tuple(_plain(event) for event in body.events),
        progress=None if body.progress is None else _plain(body.progress),
    )
    order, num_events = await hub.heartbeat(beat)
    return {"schema": SCHEMA, "order": order.value, "num_events": num_events}


@router.post("/{lease_id}:complete")
def complete(lease_id: str, body: CompleteBody, queue: Queue, hub: TheHub) -> dict[str, Any]:
    """Ends the lease. A late end is kept as evidence and not counted: `is_counted` is false then."""
    if body.document is not None:
        _plain(body.document)
    end = LeaseEnd(
        state=LeaseState(body.state),
        exit_code=body.exit_code,
        message=body.message,
        document=body.document,
        config=body.config,
        is_repeatable=body.is_repeatable,
    )
    is_counted = queue.complete(lease_id, body.fence, end, now=datetime.now(UTC), alive_s=hub.alive_s)
    hub.note_change()
    return {"schema": SCHEMA, "is_counted": is_counted}


def _plain(document: Document) -> str:
    """The document as bounded JSON text, without infinite numbers.

    Raises:
        Problem: The document is too large or not plain.
    """
    try:
        text = to_json(document)
    except (ValueError, RecursionError):
        raise _refused("is not plain JSON") from None
    if len(text) > MAX_DOCUMENT:
        raise _refused(f"is larger than {MAX_DOCUMENT} bytes")
    if "event" in document and not isinstance(json.loads(text)["event"], str):
        raise _refused("has no name")
    return text


def _refused(why: str) -> Problem:
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "usage", f"A document {why}.")
