"""`/v1/jobs/{id}/events`: the events of a job as server-sent events; each is a line of `autotune search --jsonl`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Header, Query, Response
from sse_starlette import EventSourceResponse, ServerSentEvent

from autotune.service.api.wiring import Queue, TheHub
from autotune.service.hub import Hub
from autotune.store.job_queue import JobQueue
from autotune.store.job_records import JobRecord, JobStatus

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
PAGE = 500
PING_S = 15
FINAL = {JobStatus.DONE, JobStatus.STOPPED, JobStatus.CANCELLED, JobStatus.FAILED}


@router.get("/{job_id}/events", responses={204: {"description": "The job has ended, and all events are known."}})
async def job_events(
    job_id: str,
    queue: Queue,
    hub: TheHub,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
    after: Annotated[int, Query(ge=0, le=(1 << 31) - 1, description="As Last-Event-ID, for links.")] = 0,
) -> Any:
    """All events after Last-Event-ID, then each new event until the job ends. `trial_progress` has no id."""
    job = await run_sync(queue.job, job_id)
    seen = int(last_event_id) if last_event_id and last_event_id.isdigit() else after
    if job.status in FINAL and job.num_events <= seen:
        return Response(status_code=204)
    return EventSourceResponse(_stream(queue, hub, job, seen), ping=PING_S, send_timeout=30)


async def _stream(queue: JobQueue, hub: Hub, job: JobRecord, seen: int) -> AsyncIterator[ServerSentEvent]:
    progress = None
    async with hub.watching(job.number) as watch:
        while not hub.is_closing:
            # Read before the events: a later change wakes this loop again.
            changed, status, num_events = watch.changed, watch.status, watch.num_events
            page: Sequence[tuple[int, str]] = ()
            if num_events > seen:  # Most changes of a running job are its progress.
                page = await run_sync(partial(queue.events, job.number, after=seen, limit=PAGE))
            for event_id, document in page:
                seen = event_id
                yield _event(document, str(event_id))
            if len(page) == PAGE:
                continue
            if JobStatus(status) in FINAL and seen >= num_events:
                return
            if watch.progress not in (None, progress) and status == JobStatus.RUNNING:
                progress = watch.progress
                yield _event(str(progress), None)
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), PING_S)


def _event(document: str, event_id: str | None) -> ServerSentEvent:
    name = json.loads(document).get("event", "message")
    return ServerSentEvent(document, event=name, id=event_id, sep="\n")
