"""The JSON documents of jobs and workers, for the API and for `autotune jobs --json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from autotune.store.job_records import JobRecord, LeaseRecord, LeaseState, WorkerRecord

SCHEMA = 1


def job_document(job: JobRecord) -> dict[str, Any]:
    """A job in a list."""
    request = job.request
    return {
        "schema": SCHEMA,
        "id": job.job_id,
        "study": request.study,
        "status": job.status.value,
        "wanted": job.wanted.value or None,
        "project": request.project,
        "script": request.script,
        "args": list(request.args),
        "options": dict(request.options),
        "machines": request.machines,
        "created_at": _text(job.created_at),
        "started_at": _text(job.started_at),
        "finished_at": _text(job.finished_at),
        "num_events": job.num_events,
        "exit_code": job.exit_code,
        "message": job.message or None,
    }


def whole_job_document(job: JobRecord, leases: Sequence[LeaseRecord]) -> dict[str, Any]:
    """A job with its workers, gauges and result."""
    return {
        **job_document(job),
        "workers": [lease.worker_id for lease in leases if lease.state is LeaseState.HELD],
        "attempts": [_attempt(lease) for lease in leases],
        "progress": job.progress,
        "result": job.document,
        "has_config": job.config is not None,
    }


def _attempt(lease: LeaseRecord) -> dict[str, Any]:
    return {
        "worker": lease.worker_id,
        "state": lease.state.value,
        "granted_at": _text(lease.granted_at),
        "ended_at": _text(lease.ended_at),
        "exit_code": lease.exit_code,
        "message": lease.message or None,
    }


def worker_document(worker: WorkerRecord, jobs: Mapping[str, str], *, now: datetime, alive_s: float) -> dict[str, Any]:
    """A worker.

    Args:
        worker: The worker.
        jobs: Id of the running job by worker.
        now: The present moment.
        alive_s: Longest time since the last sign of life of a living worker, in seconds.
    """
    age_s = max(0.0, (now - worker.seen_at).total_seconds())
    return {
        "schema": SCHEMA,
        "id": worker.worker_id,
        "status": worker.status.value,
        "reason": worker.reason or None,
        "is_alive": age_s < alive_s,
        "job": jobs.get(worker.worker_id),
        "class": worker.machine_class,
        "machine": worker.machine,
        "description": dict(worker.description),
        "devices": list(worker.devices),
        "cpus": list(worker.cpus),
        "projects": sorted(worker.projects),
        "registered_at": _text(worker.registered_at),
        "seen_at": _text(worker.seen_at),
    }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="milliseconds")
