"""`/v1/jobs` and `/v1/projects`: submit, list and show jobs, and say what is wanted of a job."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from autotune.service.api.wiring import Queue, Settings, Studies, TheHub
from autotune.service.documents import SCHEMA, job_document, whole_job_document
from autotune.service.submission import MAX_MACHINES, check_study_is_new, checked_request
from autotune.store.job_queue import JobQueue
from autotune.store.job_records import JobRecord, JobStatus, Wish
from autotune.store.job_tables import MAX_KEY_LENGTH
from autotune.study_file.job_options import job_options_schema

router = APIRouter(prefix="/v1", tags=["jobs"])


class JobBody(BaseModel):
    """A search to queue: a script within a registered project, never a command."""

    model_config = ConfigDict(extra="forbid", strict=True)

    project: str = Field(min_length=1, max_length=64, description="Name of a registered project.")
    script: str = Field(min_length=1, max_length=1024, description="Path of the script within the project.")
    args: list[str] = Field(default_factory=list, description="Arguments of the script; no secrets.")
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Options of the search, as in a study file.",
        json_schema_extra=job_options_schema(),
    )
    machines: int = Field(default=1, ge=1, le=MAX_MACHINES, description="Workers of one class that search together.")


@router.get("/projects")
def projects(settings: Settings, queue: Queue) -> dict[str, Any]:
    """The registered projects, with the number of workers that have each."""
    workers = queue.workers()
    names = sorted({*settings.projects, *(name for worker in workers for name in worker.projects)})
    entries = [{"name": name, "num_workers": sum(name in worker.projects for worker in workers)} for name in names]
    return {"schema": SCHEMA, "projects": entries}


@router.post("/jobs", status_code=HTTPStatus.ACCEPTED)
def submit(
    body: JobBody,
    response: Response,
    settings: Settings,
    queue: Queue,
    studies: Studies,
    hub: TheHub,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=MAX_KEY_LENGTH)] = None,
) -> dict[str, Any]:
    """Queues a search. A repeated request with the same Idempotency-Key gives the job of the first request."""
    options = dict(body.options)
    is_own = body.project in settings.projects  # else a worker must have the project
    request = checked_request(
        project=body.project,
        script=body.script,
        args=body.args,
        options=options,
        machines=body.machines,
        projects=settings.projects,
        elsewhere=() if is_own else {name for worker in queue.workers() for name in worker.projects},
    )
    digest = hashlib.sha256(json.dumps(body.model_dump(), sort_keys=True).encode()).hexdigest()
    if idempotency_key is None or not queue.has_key(idempotency_key):
        check_study_is_new(studies, request.study)
    job, is_new = queue.submit(request, now=datetime.now(UTC), key=idempotency_key, digest=digest)
    if is_new:
        hub.note_change()
    response.headers["Location"] = f"/v1/jobs/{job.job_id}"
    return whole(queue, job)


@router.get("/jobs")
def list_jobs(
    queue: Queue,
    status: Annotated[list[JobStatus] | None, Query(description="Only jobs in these states.")] = None,
    before: Annotated[str | None, Query(max_length=32, description="Only jobs older than this job.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> dict[str, Any]:
    """The jobs, newest first."""
    number = queue.job(before).number if before is not None else None
    found = queue.jobs(statuses=status or (), before=number, limit=limit)
    return {"schema": SCHEMA, "jobs": [job_document(job) for job in found]}


@router.get("/jobs/{job_id}")
def show_job(job_id: str, queue: Queue) -> dict[str, Any]:
    """A job with its workers, gauges and result."""
    return whole(queue, queue.job(job_id))


@router.post("/jobs/{job_id}:pause")
def pause(job_id: str, queue: Queue, hub: TheHub) -> dict[str, Any]:
    """Ends the search after the running trial; a resume goes on."""
    return _want(job_id, Wish.PAUSE, queue, hub)


@router.post("/jobs/{job_id}:stop")
def stop(job_id: str, queue: Queue, hub: TheHub) -> dict[str, Any]:
    """Ends the search after the running trial, with the best so far; a resume goes on."""
    return _want(job_id, Wish.STOP, queue, hub)


@router.post("/jobs/{job_id}:cancel")
def cancel(job_id: str, queue: Queue, hub: TheHub) -> dict[str, Any]:
    """Ends the running trial and the search at once."""
    return _want(job_id, Wish.CANCEL, queue, hub)


@router.post("/jobs/{job_id}:resume")
def resume(job_id: str, queue: Queue, hub: TheHub) -> dict[str, Any]:
    """Queues a paused or stopped job again."""
    job = queue.resume(job_id, now=datetime.now(UTC))
    hub.note_change()
    return whole(queue, job)


def _want(job_id: str, wish: Wish, queue: JobQueue, hub: TheHub) -> dict[str, Any]:
    job = queue.want(job_id, wish, now=datetime.now(UTC))
    hub.note_change()
    return whole(queue, job)


def whole(queue: JobQueue, job: JobRecord) -> dict[str, Any]:
    """The whole document of a job."""
    return whole_job_document(job, queue.leases(number=job.number))
