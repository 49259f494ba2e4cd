"""Leases of jobs: the right of a worker to run a job, and the job's state after the end of a lease.

Every function runs in one transaction; the caller holds the lock of the queue where the queue changes.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, insert, select, update

from autotune.errors import AutotuneError, LeaseLostError, StudyExistsError, StudyNotFoundError
from autotune.store import job_workers
from autotune.store.job_records import (
    Heartbeat,
    JobRecord,
    JobStatus,
    LeaseEnd,
    LeaseRecord,
    LeaseState,
    Order,
    Wish,
    WorkerRecord,
    WorkerStatus,
)
from autotune.store.job_rows import job_from_row, lease_from_row
from autotune.store.job_tables import events, job_leases, jobs, late_results
from autotune.store.rows import moment_to_text, to_json

MAX_LOSSES = 10
"""Losses of a job's workers without a finished trial in between, before the job counts as failed."""
_SHARED_FROM = '"event":"probe_finished"'
_PROGRESS_MADE = '"event":"trial_finished"'


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
    job_workers.touch(connection, worker_id, now=now)
    held = held_leases(connection, job_leases.c.worker_id == worker_id)
    if held:
        return _same_again(connection, held[0], session, now=now)
    if worker.status is not WorkerStatus.READY:
        return None
    if _is_machine_busy(connection, worker):
        return None
    is_suspect = job_workers.is_suspect(connection, worker, now=now, alive_s=alive_s)
    for job in _open_jobs(connection):
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
    slots = {other.worker_id: other for other in job_workers.all_workers(connection)}
    held = held_leases(connection)
    return any(not worker.is_independent_of(slots[lease.worker_id]) for lease in held if lease.worker_id in slots)


def has_open_jobs(connection: Connection) -> bool:
    """Whether a job waits for a worker, or has room for a further machine."""
    return next(iter(_open_jobs(connection)), None) is not None


def _open_jobs(connection: Connection) -> Iterable[JobRecord]:
    """Jobs with room for a further worker, the oldest first."""
    may_run = jobs.c.status == JobStatus.QUEUED.value
    may_join = (jobs.c.status == JobStatus.RUNNING.value) & (jobs.c.machines > 1) & (jobs.c.wanted == "")
    query = select(*SHORT).where(may_run | may_join).order_by(jobs.c.number)
    held = Counter(lease.job_number for lease in held_leases(connection))
    for row in connection.execute(query).mappings():
        if row["status"] == JobStatus.QUEUED.value or (row["is_shareable"] and held[row["number"]] < row["machines"]):
            yield job_from_row(row)


def _fits(
    connection: Connection, job: JobRecord, worker: WorkerRecord, *, is_suspect: bool, now: datetime, alive_s: float
) -> bool:
    """Whether the worker may take the job now."""
    request = job.request
    if request.project not in worker.projects:
        return False
    if job.machine_class not in (None, worker.machine_class):
        return False
    if job.folder not in (None, worker.projects[request.project]):
        return False
    if str(request.options.get("device", "")).startswith("cuda") and not worker.devices:
        return False
    of_job = [lease_from_row(row) for row in connection.execute(_of_job(job)).mappings()]
    held = [lease for lease in of_job if lease.state is LeaseState.HELD]
    if len(held) >= request.machines or _has_machine(connection, held, worker):
        return False
    failed = {lease.worker_id for lease in of_job if lease.state is LeaseState.FAILED}
    if worker.worker_id in failed:
        others = job_workers.peers(connection, worker, request.project, now=now, alive_s=alive_s)
        return not any(other.worker_id not in failed for other in others)
    return not is_suspect or bool(failed)


def _of_job(job: JobRecord) -> Any:
    return select(job_leases).where(job_leases.c.number == job.number).order_by(job_leases.c.lease_number)


def _has_machine(connection: Connection, held: Sequence[LeaseRecord], worker: WorkerRecord) -> bool:
    """Whether a lease belongs to the worker's machine: a study has one tuner for each machine."""
    return any(job_workers.worker_in(connection, lease.worker_id).machine == worker.machine for lease in held)


def _new_lease(
    connection: Connection, job: JobRecord, worker: WorkerRecord, *, now: datetime
) -> tuple[LeaseRecord, JobRecord]:
    lease_id = secrets.token_hex(8)
    moment = moment_to_text(now)
    connection.execute(
        insert(job_leases).values(
            lease_id=lease_id,
            number=job.number,
            worker_id=worker.worker_id,
            session=worker.session,
            machine_class=worker.machine_class,
            fence=_next_fence(connection, job),
            state=LeaseState.HELD.value,
            granted_at=moment,
            heartbeat_at=moment,
            num_events=0,
        )
    )
    values = {
        "status": JobStatus.RUNNING.value,
        "machine_class": worker.machine_class,
        "folder": worker.projects[job.request.project],
    }
    started = {} if job.started_at is not None else {"started_at": moment}
    _set(connection, job, **values, **started)
    tell_status(connection, job_with(connection, job.number), now=now, worker=worker.worker_id)
    return lease_with(connection, lease_id), job_with(connection, job.number)


def _next_fence(connection: Connection, job: JobRecord) -> int:
    _set(connection, job, fence=jobs.c.fence + 1)
    return int(connection.execute(select(jobs.c.fence).where(jobs.c.number == job.number)).scalar_one())


# Signs of life


def heartbeats(
    connection: Connection, beats: Sequence[Heartbeat], *, now: datetime
) -> list[tuple[Order, int] | AutotuneError]:
    """Order and number of received events for every heartbeat, or the error of the heartbeat, in the same order.

    Many workers share one commit, which takes far longer than the statements. See `JobQueue.heartbeats`.
    """
    wanted = [beat.lease_id for beat in beats]
    query = select(job_leases.c.lease_id, job_leases.c.number).where(job_leases.c.lease_id.in_(wanted))
    numbers = {row[0]: row[1] for row in connection.execute(query).all()}
    answers: dict[int, tuple[Order, int] | AutotuneError] = {}
    # All servers lock jobs in the same order, so no circle of waiting servers arises.
    for index in sorted(range(len(beats)), key=lambda index: (numbers.get(beats[index].lease_id, 0), index)):
        try:
            answers[index] = _heartbeat(connection, beats[index], now=now)
        except AutotuneError as error:
            answers[index] = error
    return [answers[index] for index in range(len(beats))]


def _heartbeat(connection: Connection, beat: Heartbeat, *, now: datetime) -> tuple[Order, int]:
    # The write comes first: the lock of the row keeps repeated requests and expiries apart.
    mine = (job_leases.c.lease_id == beat.lease_id, job_leases.c.fence == beat.fence)
    connection.execute(update(job_leases).where(*mine).values(heartbeat_at=moment_to_text(now)))
    lease = lease_with(connection, beat.lease_id)
    job = job_with(connection, lease.job_number, is_short=True)
    if lease.fence != beat.fence or not (lease.state is LeaseState.HELD or _revive(connection, lease, job)):
        raise LeaseLostError(
            f"Lease {lease.lease_id} is no longer held by worker {lease.worker_id!r}.",
            "End the search, and lease anew.",
        )
    job_workers.touch(connection, lease.worker_id, now=now)
    is_known = beat.first_event <= lease.num_events
    fresh = beat.new_events[lease.num_events - beat.first_event :] if is_known else ()
    _add_events(connection, job, fresh, beat.progress)
    num_events = lease.num_events + len(fresh)
    if fresh:
        connection.execute(update(job_leases).where(*mine).values(num_events=num_events))
    return _order(connection, job, lease), num_events


def _revive(connection: Connection, lease: LeaseRecord, job: JobRecord) -> bool:
    """Whether a lost lease is held again, because nobody has taken the job since."""
    newest = connection.execute(select(jobs.c.fence).where(jobs.c.number == job.number)).scalar_one()
    if lease.state is not LeaseState.LOST or newest != lease.fence or not job.status.is_active:
        return False
    of_lease = job_leases.c.lease_id == lease.lease_id
    connection.execute(update(job_leases).where(of_lease).values(state=LeaseState.HELD.value, ended_at=None))
    _set(connection, job, status=JobStatus.RUNNING.value)
    return True


def _order(connection: Connection, job: JobRecord, lease: LeaseRecord) -> Order:
    if job.wanted is Wish.CANCEL:
        return Order.CANCEL
    if job.wanted is not Wish.NOTHING:
        return Order.STOP
    is_ready = job_workers.worker_in(connection, lease.worker_id).status is WorkerStatus.READY
    return Order.CONTINUE if is_ready else Order.STOP


def _add_events(connection: Connection, job: JobRecord, documents: Sequence[str], progress: str | None) -> None:
    """Appends events to the job; the job's row is locked by the count, so ids have no gap and keep their order."""
    values: dict[str, Any] = {} if progress is None else {"progress": progress}
    if documents:
        values["num_events"] = jobs.c.num_events + len(documents)
    if any(_SHARED_FROM in text for text in documents):
        values["is_shareable"] = True
    if any(_PROGRESS_MADE in text for text in documents):
        values["num_losses"] = 0
    if values:
        _set(connection, job, **values)
    if documents:
        last = int(connection.execute(select(jobs.c.num_events).where(jobs.c.number == job.number)).scalar_one())
        first = last - len(documents) + 1
        rows = [
            {"number": job.number, "event_id": first + index, "document": text} for index, text in enumerate(documents)
        ]
        connection.execute(insert(events), rows)


def tell_status(connection: Connection, job: JobRecord, *, now: datetime, worker: str | None = None) -> None:
    """Adds the event `job` with the state of the job."""
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
    _add_events(connection, job, [to_json(document)], None)


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
    if not is_mine or not (lease.state is LeaseState.HELD or _revive(connection, lease, job)):
        _keep_late(connection, lease_id, fence, end, now=now)
        return False
    _end_lease(connection, lease, end, now=now)
    if end.state in (LeaseState.DONE, LeaseState.FAILED):
        job_workers.judge_failures(connection, job, lease, has_failed=end.state is LeaseState.FAILED)
    may_repeat = end.is_repeatable and _has_untried_peer(connection, job, lease, now=now, alive_s=alive_s)
    _settle(connection, job, lease, end, now=now, may_repeat=may_repeat)
    return True


def _has_untried_peer(
    connection: Connection, job: JobRecord, lease: LeaseRecord, *, now: datetime, alive_s: float
) -> bool:
    """Whether another living machine of the class has not failed on the job."""
    failed = (job_leases.c.number == job.number, job_leases.c.state == LeaseState.FAILED.value)
    tried = set(connection.execute(select(job_leases.c.worker_id).where(*failed)).scalars())
    worker = job_workers.worker_in(connection, lease.worker_id)
    found = job_workers.peers(connection, worker, job.request.project, now=now, alive_s=alive_s)
    return any(other.worker_id not in tried for other in found)


def _settle(
    connection: Connection, job: JobRecord, lease: LeaseRecord, end: LeaseEnd, *, now: datetime, may_repeat: bool
) -> None:
    """Moves the job on after the end of a lease."""
    if not job.status.is_active:
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
        # A stored failure is final: the next machine begins a study of another name.
        again = end.state is LeaseState.FAILED and end.document is not None
        study = {"study": f"{job.study}-again", "is_shareable": False} if again else {}
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


def job_with(connection: Connection, number: int, *, is_short: bool = False) -> JobRecord:
    """The job with the number, perhaps without documents."""
    query = select(*SHORT) if is_short else select(jobs)
    return job_from_row(connection.execute(query.where(jobs.c.number == number)).mappings().one())


def lease_with(connection: Connection, lease_id: str) -> LeaseRecord:
    """The lease.

    Raises:
        StudyNotFoundError: There is no such lease.
    """
    row = connection.execute(select(job_leases).where(job_leases.c.lease_id == lease_id)).mappings().one_or_none()
    if row is None:
        raise StudyNotFoundError(f"There is no lease {lease_id!r}.", "Lease anew.")
    return lease_from_row(row)


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
