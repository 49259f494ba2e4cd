"""Workers of the queue: registration, states, and the quarantine of failing machines."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import Connection, insert, select, update

from autotune.errors import StudyNotFoundError
from autotune.store.job_records import JobRecord, LeaseRecord, LeaseState, WorkerRecord, WorkerStatus
from autotune.store.job_rows import lease_from_row, worker_from_row, worker_to_row
from autotune.store.job_tables import job_leases, workers
from autotune.store.rows import moment_to_text

MAX_FAILURES = 3
"""Failures in a row before a quarantine, where other machines of the class succeed."""


def worker_in(connection: Connection, worker_id: str) -> WorkerRecord:
    """The worker.

    Raises:
        StudyNotFoundError: The queue has no such worker.
    """
    row = connection.execute(select(workers).where(workers.c.worker_id == worker_id)).mappings().one_or_none()
    if row is None:
        raise StudyNotFoundError(f"There is no worker {worker_id!r}.", "Register it: autotune worker --server URL")
    return worker_from_row(row)


def all_workers(connection: Connection) -> tuple[WorkerRecord, ...]:
    """All workers, by name."""
    rows = connection.execute(select(workers).order_by(workers.c.worker_id)).mappings()
    return tuple(worker_from_row(row) for row in rows)


def on_machine(connection: Connection, machine: str) -> tuple[WorkerRecord, ...]:
    """The workers of one machine."""
    rows = connection.execute(select(workers).where(workers.c.machine == machine)).mappings()
    return tuple(worker_from_row(row) for row in rows)


def register(connection: Connection, worker: WorkerRecord) -> WorkerRecord:
    """The worker as stored. After a restart of the worker a quarantine goes on, and a drain has ended."""
    row = worker_to_row(worker)
    seen = moment_to_text(worker.seen_at)
    known = connection.execute(
        select(workers.c.status).where(workers.c.worker_id == worker.worker_id)
    ).scalar_one_or_none()
    if known is None:
        values = {**row, "worker_id": worker.worker_id, "status": worker.status.value, "reason": worker.reason}
        connection.execute(insert(workers).values(**values, registered_at=seen, seen_at=seen))
    else:
        is_kept = known == WorkerStatus.QUARANTINED.value
        state = {} if is_kept else {"status": WorkerStatus.READY.value, "reason": ""}
        of_worker = workers.c.worker_id == worker.worker_id
        connection.execute(update(workers).where(of_worker).values(**row, **state, registered_at=seen, seen_at=seen))
    return worker_in(connection, worker.worker_id)


def touch(connection: Connection, worker_ids: Collection[str], *, now: datetime) -> None:
    """Notes a sign of life of the workers."""
    statement = update(workers).where(workers.c.worker_id.in_(list(worker_ids)))
    connection.execute(statement.values(seen_at=moment_to_text(now)))


def set_status(connection: Connection, worker_id: str, status: WorkerStatus, reason: str = "") -> WorkerRecord:
    """The worker in the new state; READY forgives earlier failures."""
    worker_in(connection, worker_id)
    values = {"status": status.value, "reason": reason}
    connection.execute(update(workers).where(workers.c.worker_id == worker_id).values(**values))
    if status is WorkerStatus.READY:
        of_worker = (job_leases.c.worker_id == worker_id, job_leases.c.state == LeaseState.FAILED.value)
        connection.execute(update(job_leases).where(*of_worker).values(is_shared=True))
    return worker_in(connection, worker_id)


def peers(
    connection: Connection, worker: WorkerRecord, project: str | None, *, now: datetime, alive_s: float
) -> tuple[WorkerRecord, ...]:
    """Other living and ready workers of the same class.

    Args:
        connection: Connection to the database.
        worker: A worker.
        project: Only workers with this project; None = all.
        now: The present moment.
        alive_s: Longest time since the last sign of life, in seconds.
    """
    since = now - timedelta(seconds=alive_s)
    return tuple(
        other
        for other in all_workers(connection)
        if other.worker_id != worker.worker_id
        and other.machine_class == worker.machine_class
        and other.status is WorkerStatus.READY
        and other.seen_at >= since
        and (project is None or project in other.projects)
    )


def failures_in_a_row(connection: Connection, worker_id: str) -> tuple[LeaseRecord, ...]:
    """The worker's failures since the last success, the newest first, without failures of the jobs themselves."""
    ended = (LeaseState.FAILED.value, LeaseState.DONE.value)
    query = select(job_leases).where(job_leases.c.worker_id == worker_id, job_leases.c.state.in_(ended))
    newest = query.order_by(job_leases.c.ended_at.desc(), job_leases.c.lease_number.desc()).limit(50)
    found = []
    for row in connection.execute(newest).mappings():
        lease = lease_from_row(row)
        if lease.state is LeaseState.DONE:
            break
        if not lease.is_shared:
            found.append(lease)
    return tuple(found)


def is_suspect(connection: Connection, worker: WorkerRecord, *, now: datetime, alive_s: float) -> bool:
    """Whether a worker with MAX_FAILURES failures in a row must wait for the results of other workers of the class."""
    if len(failures_in_a_row(connection, worker.worker_id)) < MAX_FAILURES:
        return False
    return bool(peers(connection, worker, None, now=now, alive_s=alive_s))


def judge_failures(connection: Connection, job: JobRecord, lease: LeaseRecord, *, has_failed: bool) -> None:
    """Compares the end of a job on one worker with earlier failures of the job on other workers of the class.

    After a success the earlier failures count against the failing machines, and `MAX_FAILURES` in a row mean
    quarantine. After a second failure the failures count against the job.
    """
    of_others = (
        job_leases.c.number == job.number,
        job_leases.c.state == LeaseState.FAILED.value,
        job_leases.c.worker_id != lease.worker_id,
        job_leases.c.is_shared.is_(None),
    )
    rows = connection.execute(select(job_leases).where(*of_others)).mappings().all()
    if not rows:
        return
    connection.execute(update(job_leases).where(*of_others).values(is_shared=has_failed))
    if has_failed:
        connection.execute(update(job_leases).where(job_leases.c.lease_id == lease.lease_id).values(is_shared=True))
        return
    for worker_id in {row["worker_id"] for row in rows}:
        own = [failure for failure in failures_in_a_row(connection, worker_id) if failure.is_shared is False]
        if len(own) >= MAX_FAILURES:
            reason = f"{len(own)} failures in a row that other machines of its class do not have: {own[0].message}"
            set_status(connection, worker_id, WorkerStatus.QUARANTINED, reason)
