"""`/v1/workers`: register, list, lease, drain and enable.

A worker's token opens the routes of `for_workers` and no other route of this file.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from autotune.service.api.wiring import Queue, Settings, TheHub
from autotune.service.documents import SCHEMA, job_document, worker_document
from autotune.store.job_queue import JobQueue
from autotune.store.job_records import LeaseState, WorkerRecord, WorkerStatus
from autotune.store.url import url_without_secrets

router = APIRouter(prefix="/v1/workers", tags=["workers"])
for_workers = APIRouter(prefix="/v1/workers", tags=["workers"])
MAX_WAIT_S = 30.0
HEARTBEATS_PER_TTL = 10
"""Heartbeats in the time after which a silent worker is lost."""

WorkerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")]
ShortText = Annotated[str, Field(min_length=1, max_length=255)]


class WorkerBody(BaseModel):
    """A worker: one slot of a machine."""

    model_config = ConfigDict(extra="forbid")

    id: WorkerName = Field(description="Name of the worker, the same after a restart.")
    session: Annotated[str, Field(min_length=8, max_length=64)] = Field(description="Random name of the process.")
    machine: ShortText = Field(description="Name of the machine, equal for all workers of one machine.")
    machine_class: Annotated[str, Field(min_length=1, max_length=64)] = Field(alias="class")
    description: dict[str, Any] = Field(default_factory=dict)
    devices: list[ShortText] = Field(default_factory=list, max_length=64)
    cpus: list[int] = Field(default_factory=list, max_length=4096)
    projects: dict[ShortText, Annotated[str, Field(max_length=4096)]] = Field(max_length=1000)


class LeaseBody(BaseModel):
    """A request for work."""

    model_config = ConfigDict(extra="forbid")

    session: Annotated[str, Field(min_length=8, max_length=64)]
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S, allow_inf_nan=False)] = 20.0


@for_workers.post("")
def register(body: WorkerBody, queue: Queue, hub: TheHub) -> dict[str, Any]:
    """Registers a worker, or a new process of a known worker."""
    now = datetime.now(UTC)
    worker = queue.register(
        WorkerRecord(
            worker_id=body.id,
            session=body.session,
            machine=body.machine,
            machine_class=body.machine_class,
            description=body.description,
            devices=tuple(body.devices),
            cpus=tuple(body.cpus),
            projects=body.projects,
            registered_at=now,
            seen_at=now,
        )
    )
    hub.note_change()
    return worker_document(worker, _jobs_of(queue, body.id), now=now, alive_s=hub.alive_s)


@router.get("")
def list_workers(queue: Queue, hub: TheHub) -> dict[str, Any]:
    """All workers, by name."""
    now, jobs = datetime.now(UTC), _jobs_of(queue)
    found = [worker_document(worker, jobs, now=now, alive_s=hub.alive_s) for worker in queue.workers()]
    return {"schema": SCHEMA, "workers": found}


@for_workers.post("/{worker_id}:lease", responses={204: {"description": "No work within the wait."}})
async def lease(worker_id: str, body: LeaseBody, settings: Settings, hub: TheHub) -> Any:
    """The lease of the worker: waits for work. A repeated request gives the same lease.

    `storage` is the database without a password: a worker has the password from the user of its machine.
    """
    granted = await hub.lease(worker_id, body.session, wait_s=body.wait_s)
    if granted is None:
        return Response(status_code=204)
    lease, job = granted
    return {
        "schema": SCHEMA,
        "lease": lease.lease_id,
        "fence": lease.fence,
        "heartbeat_s": settings.lease_ttl_s / HEARTBEATS_PER_TTL,
        "storage": url_without_secrets(settings.storage),
        "job": job_document(job),
    }


@for_workers.post("/{worker_id}:drain")
def drain(worker_id: str, queue: Queue, hub: TheHub) -> dict[str, Any]:
    """Gives the worker no further job; a running search ends after the running trial, and goes on elsewhere."""
    return _set_status(worker_id, WorkerStatus.DRAINING, queue, hub)


@router.post("/{worker_id}:enable")
def enable(worker_id: str, queue: Queue, hub: TheHub) -> dict[str, Any]:
    """Gives the worker jobs again, after a drain or a quarantine."""
    return _set_status(worker_id, WorkerStatus.READY, queue, hub)


def _set_status(worker_id: str, status: WorkerStatus, queue: JobQueue, hub: TheHub) -> dict[str, Any]:
    worker = queue.set_worker_status(worker_id, status)
    hub.note_change()
    return worker_document(worker, _jobs_of(queue, worker_id), now=datetime.now(UTC), alive_s=hub.alive_s)


def _jobs_of(queue: JobQueue, worker_id: str | None = None) -> dict[str, str]:
    """Id of the running job by worker, of one worker or of all."""
    held = queue.leases(state=LeaseState.HELD, worker_id=worker_id)
    ids = queue.job_ids([lease.job_number for lease in held]) if held else {}
    return {lease.worker_id: ids[lease.job_number] for lease in held if lease.job_number in ids}
