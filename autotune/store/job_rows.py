"""Turns rows of the queue into records."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from sqlalchemy import RowMapping

from autotune.store.job_records import (
    JobRecord,
    JobRequest,
    JobStatus,
    LeaseRecord,
    LeaseState,
    Wish,
    WorkerRecord,
    WorkerStatus,
)
from autotune.store.rows import moment_from_text, moment_to_text, to_json


def job_from_row(row: RowMapping) -> JobRecord:
    """A job; columns left out of the query stay None."""
    return JobRecord(
        number=row["number"],
        job_id=row["job_id"],
        request=JobRequest(
            study=row["study"],
            project=row["project"],
            script=row["script"],
            args=tuple(json.loads(row["args"])),
            options=json.loads(row["options"]),
            machines=row["machines"],
        ),
        status=JobStatus(row["status"]),
        wanted=Wish(row["wanted"]),
        created_at=moment_from_text(row["created_at"]),
        started_at=_moment(row["started_at"]),
        finished_at=_moment(row["finished_at"]),
        machine_class=row["machine_class"],
        folder=row["folder"],
        num_events=row["num_events"],
        progress=_json(row.get("progress")),
        exit_code=row["exit_code"],
        message=row["message"] or "",
        document=_json(row.get("document")),
        config=row.get("config"),
    )


def worker_from_row(row: RowMapping) -> WorkerRecord:
    """A worker."""
    return WorkerRecord(
        worker_id=row["worker_id"],
        session=row["session"],
        machine=row["machine"],
        machine_class=row["machine_class"],
        description=json.loads(row["description"]),
        devices=tuple(json.loads(row["devices"])),
        cpus=tuple(json.loads(row["cpus"])),
        projects=json.loads(row["projects"]),
        status=WorkerStatus(row["status"]),
        reason=row["reason"],
        registered_at=moment_from_text(row["registered_at"]),
        seen_at=moment_from_text(row["seen_at"]),
    )


def worker_to_row(worker: WorkerRecord) -> dict[str, Any]:
    """The columns of a worker, but for the signs of life."""
    return {
        "session": worker.session,
        "machine": worker.machine,
        "machine_class": worker.machine_class,
        "description": to_json(dict(worker.description)),
        "devices": to_json(list(worker.devices)),
        "cpus": to_json(list(worker.cpus)),
        "projects": to_json(dict(worker.projects)),
    }


def lease_from_row(row: RowMapping) -> LeaseRecord:
    """A lease."""
    return LeaseRecord(
        lease_id=row["lease_id"],
        job_number=row["number"],
        worker_id=row["worker_id"],
        session=row["session"],
        fence=row["fence"],
        state=LeaseState(row["state"]),
        granted_at=moment_from_text(row["granted_at"]),
        heartbeat_at=moment_from_text(row["heartbeat_at"]),
        ended_at=_moment(row["ended_at"]),
        num_events=row["num_events"],
        exit_code=row["exit_code"],
        message=row["message"] or "",
        is_shared=None if row["is_shared"] is None else bool(row["is_shared"]),
    )


def lease_to_row(lease: LeaseRecord) -> dict[str, Any]:
    """The columns of a new lease."""
    return {
        "lease_id": lease.lease_id,
        "number": lease.job_number,
        "worker_id": lease.worker_id,
        "session": lease.session,
        "fence": lease.fence,
        "state": lease.state.value,
        "granted_at": moment_to_text(lease.granted_at),
        "heartbeat_at": moment_to_text(lease.heartbeat_at),
        "num_events": lease.num_events,
    }


def _moment(text: str | None) -> datetime | None:
    return None if text is None else moment_from_text(text)


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
