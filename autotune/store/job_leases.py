"""Leases of jobs: the right of a worker to run a job, and the job's state after the end of a lease.

Every function runs in one transaction; the caller holds the lock of the queue where the queue changes.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, insert, select, update

from autotune.errors import StudyExistsError, StudyNotFoundError
from autotune.store import job_workers
from autotune.store.job_records import (
    JobRecord,
    JobStatus,
    LeaseEnd,
    LeaseRecord,
    LeaseState,
    Wish,
    WorkerRecord,
    WorkerStatus,
)
from autotune.store.job_rows import job_from_row, lease_from_row, lease_to_row
from autotune.store.job_tables import events, job_leases, jobs, late_results, workers
from autotune.store.rows import moment_to_text, to_json

MAX_LOSSES = 10
"""Losses of a job's workers without a finished trial in between, before the job counts as failed."""
FIRST_PAGE, PAGE = 2, 50
"""Jobs read at once in the search for a job that fits: mostly the oldest fits."""
SHARED_FROM = '"event":"probe_finished"'
PROGRESS_MADE = '"event":"trial_finished"'


# The user's wishes


def apply_wish(connection: Connection, job: JobRecord, wish: Wish, *, now: datetime) -> None:
    """Notes a wish for a running job, or moves a waiting job to the wished state.

    Raises:
        StudyExistsError: The job has ended.
    """
    if job.status is wish.status:
        return
    may_end = job.status is JobStatus.PAUSED and wish is not Wish.PAUSE
    may_end = may_end or (job.status is JobStatus.STOPPED and wish is Wish.CANCEL)
    if not job.status.is_active and not may_end:
        raise StudyExistsError(
            f"Job {job.job_id} is {job.status}, so it cannot be {wish.status}.", "See its state: autotune jobs show ID"
        )
    if job.status is JobStatus.RUNNING:
        if job.wanted in (wish, Wish.CANCEL):
            return
        _set(connection, job, wanted=wish.value)
        tell_status(connection, job_with(connection, job.number), now=now)
    else:
        _end(connection, job, wish.status, now=now)


def requeue(connection: Connection, job: JobRecord, *, now: datetime) -> None:
    """Queues a paused or stopped job again.

    Raises:
        StudyExistsError: The job is neither paused nor stopped.
    """
    if job.status is JobStatus.QUEUED:
        return
    if job.status not in (JobStatus.PAUSED, JobStatus.STOPPED):
        raise StudyExistsError(
            f"Job {job.job_id} is {job.status}; only a paused or stopped job goes on.", "Submit it anew."
        )
    _set(connection, job, status=JobStatus.QUEUED.value, wanted="", finished_at=None, num_losses=0)
    tell_status(connection, job_with(connection, job.number), now=now)


# Grants


def grant(
    connection: Connection, worker_id: str, session: str, *, now: datetime, alive_s: float
) -> tuple[LeaseRecord, JobRecord] | None:
    """The worker's held lease or a new lease, with the job; None without work. See `JobQueue.grant`."""
    worker = job_workers.worker_in(connection, worker_id)
    if worker.session != session:
        raise StudyExistsError(
            f"Worker {worker_id!r} was started again, and this process is not the latest.", "Give each a --name."
        )
    job_workers.touch(connection, (worker_id,), now=now)
    held = held_leases(connection, job_leases.c.worker_id == worker_id)
    if held:
        return _same_again(connection, held[0], session, now=now)
    if worker.status is not WorkerStatus.READY:
        return None
    if _is_machine_busy(connection, worker):
        return None
    is_suspect = job_workers.is_suspect(connection, worker, now=now, alive_s=alive_s)
    for job in _open_jobs(connection, worker):
        if _fits(connection, job, worker, is_suspect=is_suspect, now=now, alive_s=alive_s):
            return _new_lease(connection, job, worker, now=now)
    return None


def _same_again(
    connection: Connection, lease: LeaseRecord, session: str, *, now: datetime
) -> tuple[LeaseRecord, JobRecord]:
    """The held lease; a new process of the worker gets a new fence, so that the old process counts no more."""
    job = job_with(connection, lease.job_number)
    if lease.session != session:
        fence = _next_fence(connection, job)
        values = {"session": session, "fence": fence, "heartbeat_at": moment_to_text(now), "num_events": 0}
        connection.execute(update(job_leases).where(job_leases.c.lease_id == lease.lease_id).values(**values))
    return lease_with(connection, lease.lease_id), job


def _is_machine_busy(connection: Connection, worker: WorkerRecord) -> bool:
    """Whether a trial of another slot of the machine would disturb a trial of the worker."""
    on_machine = job_workers.on_machine(connection, worker.machine)
    others = {other.worker_id: other for other in on_machine if other.worker_id != worker.worker_id}
    if not others:
        return False
    held = held_leases(connection, job_leases.c.worker_id.in_(list(others)))
    return any(not worker.is_independent_of(others[lease.worker_id]) for lease in held)


def wanted_workers(connection: Connection, worker_ids: Collection[str]) -> set[str]:
    """Those of the workers with the project and the class of an open job.

    A transaction of its own asks for a job for each of them; the other waiting workers are spared the transaction.
    """
    wanted = select(jobs.c.project, jobs.c.machine_class, jobs.c.folder).where(_has_room()).distinct()
    places = connection.execute(wanted).all()
    if not places:
        return set()
    is_ready = workers.c.worker_id.in_(list(worker_ids)) & (workers.c.status == WorkerStatus.READY.value)
    query = select(workers.c.worker_id, workers.c.machine_class, workers.c.projects).where(is_ready)
    return {
        worker_id
        for worker_id, own_class, projects in connection.execute(query).all()
        if any(_is_in_place(own_class, json.loads(projects), *place) for place in places)
    }


def _open_jobs(connection: Connection, worker: WorkerRecord) -> Iterator[JobRecord]:
    """Jobs of the worker's projects with room for a further worker, the oldest first."""
    query = select(*SHORT).where(_has_room(), jobs.c.project.in_(list(worker.projects))).order_by(jobs.c.number)
    last, page = 0, FIRST_PAGE
    while rows := connection.execute(query.where(jobs.c.number > last).limit(page)).mappings().all():
        yield from map(job_from_row, rows)
        last, page = rows[-1]["number"], PAGE


def _has_room() -> ColumnElement[bool]:
    """Whether a job waits for a worker, or has room for a further machine."""
    held = select(func.count()).where(job_leases.c.number == jobs.c.number, job_leases.c.state == LeaseState.HELD.value)
    is_shared = (jobs.c.status == JobStatus.RUNNING.value) & (jobs.c.machines > 1) & jobs.c.is_shareable
    may_join = is_shared & (jobs.c.wanted == "") & (held.scalar_subquery() < jobs.c.machines)
    return (jobs.c.status == JobStatus.QUEUED.value) | may_join


def _is_in_place(
    own_class: str, projects: Mapping[str, str], project: str, machine_class: str | None, folder: str | None
) -> bool:
    """Whether a worker has the project, at the place and in the class of machines of the job's first worker."""
    is_of_class = machine_class in (None, own_class)
    return project in projects and is_of_class and folder in (None, projects[project])


def _fits(
    connection: Connection, job: JobRecord, worker: WorkerRecord, *, is_suspect: bool, now: datetime, alive_s: float
) -> bool:
    """Whether the worker may take the job now."""
    request = job.request
    if not _is_in_place(worker.machine_class, worker.projects, request.project, job.machine_class, job.folder):
        return False
    if str(request.options.get("device", "")).startswith("cuda") and not worker.devices:
        return False
    of_job = [lease_from_row(row) for row in connection.execute(_of_job(job)).mappings()]
    held = [lease for lease in of_job if lease.state is LeaseState.HELD]
    if len(held) >= request.machines or _has_machine(connection, held, worker):
        return False
    failed = {lease.worker_id for lease in of_job if lease.state is LeaseState.FAILED}
    if worker.worker_id in failed:
        others = _peers_in_place(connection, worker, job, job.folder, now=now, alive_s=alive_s)
        return not any(other.worker_id not in failed for other in others)
    return not is_suspect or bool(failed)


def _peers_in_place(
    connection: Connection, worker: WorkerRecord, job: JobRecord, folder: str | None, *, now: datetime, alive_s: float
) -> Iterator[WorkerRecord]:
    """Other living workers of the class with the project, in this folder; None = wherever they have the project."""
    project = job.request.project
    for other in job_workers.peers(connection, worker, project, now=now, alive_s=alive_s):
        if _is_in_place(other.machine_class, other.projects, project, job.machine_class, folder):
            yield other


def _of_job(job: JobRecord) -> Any:
    return select(job_leases).where(job_leases.c.number == job.number).order_by(job_leases.c.lease_number)


def _has_machine(connection: Connection, held: Sequence[LeaseRecord], worker: WorkerRecord) -> bool:
    """Whether a lease belongs to the worker's machine: a study has one tuner for each machine."""
    return any(job_workers.worker_in(connection, lease.worker_id).machine == worker.machine for lease in held)


def _new_lease(
    connection: Connection, job: JobRecord, worker: WorkerRecord, *, now: datetime
) -> tuple[LeaseRecord, JobRecord]:
    values = {
        "status": JobStatus.RUNNING.value,
        "machine_class": worker.machine_class,
        "folder": worker.projects[job.request.project],
    }
    started = {} if job.started_at is not None else {"started_at": moment_to_text(now)}
    lease = LeaseRecord(
        lease_id=secrets.token_hex(8),
        job_number=job.number,
        worker_id=worker.worker_id,
        session=worker.session,
        fence=_next_fence(connection, job, **values, **started),
        state=LeaseState.HELD,
        granted_at=now,
        heartbeat_at=now,
    )
    row = lease_to_row(lease) | {"machine_class": worker.machine_class}
    connection.execute(insert(job_leases).values(**row))
    job = job_with(connection, job.number)
    return lease, replace(job, num_events=tell_status(connection, job, now=now, worker=worker.worker_id))


def _next_fence(connection: Connection, job: JobRecord, **values: Any) -> int:
    """The job's next fence, after the change of the job's values."""
    _set(connection, job, fence=jobs.c.fence + 1, **values)
    return int(connection.execute(select(jobs.c.fence).where(jobs.c.number == job.number)).scalar_one())


# Signs of life


def revive(connection: Connection, lease: LeaseRecord, job: JobRecord) -> bool:
    """Whether a lost lease is held again, because nobody has taken the job since."""
    newest = connection.execute(select(jobs.c.fence).where(jobs.c.number == job.number)).scalar_one()
    if lease.state is not LeaseState.LOST or newest != lease.fence or not job.status.is_active:
        return False
    of_lease = job_leases.c.lease_id == lease.lease_id
    connection.execute(update(job_leases).where(of_lease).values(state=LeaseState.HELD.value, ended_at=None))
    _set(connection, job, status=JobStatus.RUNNING.value)
    return True


def tell_status(connection: Connection, job: JobRecord, *, now: datetime, worker: str | None = None) -> int:
    """Adds the event `job` with the state of the job; gives the event's id, the number of the job's events."""
    document = {
        "schema": 1,
        "event": "job",
        "at": now.astimezone(UTC).isoformat(timespec="milliseconds"),
        "id": job.job_id,
        "status": job.status.value,
        "wanted": job.wanted.value or None,
        "worker": worker,
        "message": job.message or None,
    }
    _set(connection, job, num_events=jobs.c.num_events + 1)  # locks the row, so ids have no gap and keep their order
    event_id = int(connection.execute(select(jobs.c.num_events).where(jobs.c.number == job.number)).scalar_one())
    connection.execute(insert(events).values(number=job.number, event_id=event_id, document=to_json(document)))
    return event_id


def expire(connection: Connection, *, seen_before: datetime, now: datetime) -> int:
    """Ends silent leases, and queues their jobs again; the number of leases."""
    silent = held_leases(connection, job_leases.c.heartbeat_at < moment_to_text(seen_before))
    for lease in silent:
        _end_lease(connection, lease, LeaseEnd(state=LeaseState.LOST, message="no sign of life"), now=now)
        job = job_with(connection, lease.job_number)
        _set(connection, job, num_losses=jobs.c.num_losses + 1)
        _settle(connection, job, lease, LeaseEnd(state=LeaseState.LOST), now=now, may_repeat=True)
    return len(silent)


# Ends


def complete(
    connection: Connection, lease_id: str, fence: int, end: LeaseEnd, *, now: datetime, alive_s: float
) -> bool:
    """Whether the end counts. See `JobQueue.complete`."""
    lease = lease_with(connection, lease_id)
    job = job_with(connection, lease.job_number)
    is_mine = lease.fence == fence
    if is_mine and lease.state not in (LeaseState.HELD, LeaseState.LOST):
        return True  # The answer to the first request was lost.
    if not is_mine or not (lease.state is LeaseState.HELD or revive(connection, lease, job)):
        _keep_late(connection, lease_id, fence, end, now=now)
        return False
    _end_lease(connection, lease, end, now=now)
    if end.state in (LeaseState.DONE, LeaseState.FAILED):
        job_workers.judge_failures(connection, job, lease, has_failed=end.state is LeaseState.FAILED)
    folder = None if _needs_new_study(end) else job.folder
    may_repeat = end.is_repeatable and _has_untried_peer(connection, job, lease, folder, now=now, alive_s=alive_s)
    _settle(connection, job, lease, end, now=now, may_repeat=may_repeat)
    return True


def _has_untried_peer(
    connection: Connection, job: JobRecord, lease: LeaseRecord, folder: str | None, *, now: datetime, alive_s: float
) -> bool:
    """Whether another living machine of the class, with the project in this folder, has not failed on the job."""
    failed = (job_leases.c.number == job.number, job_leases.c.state == LeaseState.FAILED.value)
    tried = set(connection.execute(select(job_leases.c.worker_id).where(*failed)).scalars())
    worker = job_workers.worker_in(connection, lease.worker_id)
    found = _peers_in_place(connection, worker, job, folder, now=now, alive_s=alive_s)
    return any(other.worker_id not in tried for other in found)


def _needs_new_study(end: LeaseEnd) -> bool:
    """Whether the next machine begins a study of another name, in a folder of its own: a stored failure is final."""
    return end.state is LeaseState.FAILED and end.document is not None


def _settle(
    connection: Connection, job: JobRecord, lease: LeaseRecord, end: LeaseEnd, *, now: datetime, may_repeat: bool
) -> None:
    """Moves the job on after the end of a lease."""
    if not job.status.is_active:
        if job.status is JobStatus.DONE and end.state is LeaseState.DONE and end.config is not None:
            # Of several machines one writes the config; another may have read the result and ended before.
            is_missing = (jobs.c.number == job.number) & jobs.c.config.is_(None)
            connection.execute(update(jobs).where(is_missing).values(config=end.config))
        return
    if end.state is LeaseState.DONE:
        _end(connection, job, JobStatus.DONE, now=now, end=end)
        return
    if held_leases(connection, job_leases.c.number == job.number):
        return  # Other machines go on with the study.
    num_losses = connection.execute(select(jobs.c.num_losses).where(jobs.c.number == job.number)).scalar_one()
    if job.wanted is not Wish.NOTHING:
        _end(connection, job, job.wanted.status, now=now, end=end)
    elif end.state is LeaseState.LOST and num_losses >= MAX_LOSSES:
        lost = LeaseEnd(state=LeaseState.LOST, message=f"Its worker was lost {num_losses} times without a new trial.")
        _end(connection, job, JobStatus.FAILED, now=now, end=lost)
    elif end.state is LeaseState.FAILED and not may_repeat:
        _end(connection, job, JobStatus.FAILED, now=now, end=end)
    else:
        again = {"study": f"{job.study}-again", "is_shareable": False, "folder": None}
        study = again if _needs_new_study(end) else {}
        _set(connection, job, status=JobStatus.QUEUED.value, message=end.message, **study)
        tell_status(connection, job_with(connection, job.number), now=now, worker=lease.worker_id)


def _end(
    connection: Connection, job: JobRecord, status: JobStatus, *, now: datetime, end: LeaseEnd | None = None
) -> None:
    values: dict[str, Any] = {"status": status.value, "wanted": "", "finished_at": moment_to_text(now)}
    if end is not None:
        values |= {"exit_code": end.exit_code, "message": end.message}
        if end.document is not None:
            values["document"] = to_json(dict(end.document))
        if end.config is not None:
            values["config"] = end.config
    _set(connection, job, **values)
    tell_status(connection, job_with(connection, job.number), now=now)


def _end_lease(connection: Connection, lease: LeaseRecord, end: LeaseEnd, *, now: datetime) -> None:
    values = {
        "state": end.state.value,
        "ended_at": moment_to_text(now),
        "exit_code": end.exit_code,
        "message": end.message,
    }
    connection.execute(update(job_leases).where(job_leases.c.lease_id == lease.lease_id).values(**values))


def _keep_late(connection: Connection, lease_id: str, fence: int, end: LeaseEnd, *, now: datetime) -> None:
    document = {
        "state": end.state.value,
        "exit_code": end.exit_code,
        "message": end.message,
        "document": None if end.document is None else dict(end.document),
        "config": end.config,
    }
    row = {"lease_id": lease_id, "fence": fence, "received_at": moment_to_text(now), "document": to_json(document)}
    same = select(late_results.c.late_number).where(late_results.c.lease_id == lease_id, late_results.c.fence == fence)
    if connection.execute(same).first() is None:
        connection.execute(insert(late_results).values(**row))


# Reads


SHORT = tuple(column for column in jobs.c if column.name not in ("document", "config", "progress"))
"""Columns of a job without documents."""


def job_with(connection: Connection, number: int) -> JobRecord:
    """The job with the number, without documents."""
    return job_from_row(connection.execute(select(*SHORT).where(jobs.c.number == number)).mappings().one())


def lease_with(connection: Connection, lease_id: str) -> LeaseRecord:
    """The lease.

    Raises:
        StudyNotFoundError: There is no such lease.
    """
    row = connection.execute(select(job_leases).where(job_leases.c.lease_id == lease_id)).mappings().one_or_none()
    if row is None:
        raise no_lease(lease_id)
    return lease_from_row(row)


def no_lease(lease_id: str) -> StudyNotFoundError:
    """The error for an unknown lease."""
    return StudyNotFoundError(f"There is no lease {lease_id!r}.", "Lease anew.")


def held_leases(connection: Connection, *where: Any) -> tuple[LeaseRecord, ...]:
    """Held leases under a condition, in the order of grants."""
    query = select(job_leases).where(job_leases.c.state == LeaseState.HELD.value, *where)
    rows = connection.execute(query.order_by(job_leases.c.lease_number)).mappings()
    return tuple(lease_from_row(row) for row in rows)


def late_results_in(connection: Connection) -> tuple[tuple[str, int, dict[str, Any]], ...]:
    """(lease, fence, document) of all late results."""
    found = connection.execute(select(late_results).order_by(late_results.c.late_number)).mappings()
    return tuple((row["lease_id"], row["fence"], json.loads(row["document"])) for row in found)


def _set(connection: Connection, job: JobRecord, **values: Any) -> None:
    connection.execute(update(jobs).where(jobs.c.number == job.number).values(**values))
