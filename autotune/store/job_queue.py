"""The queue of the service in a database: jobs, events, workers and leases."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, RowMapping, func, insert, inspect, select, update

from autotune.errors import AutotuneError, StudyExistsError, StudyNotFoundError
from autotune.store import job_heartbeats, job_leases, job_workers
from autotune.store.database import Database, OwnsDatabase
from autotune.store.group_commit import GroupCommit
from autotune.store.job_records import (
    Heartbeat,
    JobRecord,
    JobRequest,
    JobStatus,
    LeaseEnd,
    LeaseRecord,
    LeaseState,
    Order,
    Wish,
    WorkerRecord,
    WorkerStatus,
)
from autotune.store.job_rows import job_from_row, lease_from_row, worker_from_row
from autotune.store.job_tables import events, jobs, make_missing, queue, workers
from autotune.store.job_tables import job_leases as leases_table
from autotune.store.retry import Patience
from autotune.store.rows import moment_to_text, to_json
from autotune.store.url import sqlite_path

T = TypeVar("T")


class JobQueue(OwnsDatabase):
    """Jobs, workers and leases in one database. Writes of several threads share a commit; servers share the database.

    Operations wait a bounded time for a locked or lost database, then raise StoreError. Several threads may call
    methods at once. Close the queue after use, or use the queue as a context manager.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._changes = GroupCommit(database)
        # SQLite has one writer at a time. Elsewhere heartbeats need not wait for changes, which hold the queue's lock.
        self._heartbeats = self._changes if sqlite_path(database.url) else GroupCommit(database)

    @classmethod
    def open(cls, url: str, *, patience: Patience | None = None) -> Self:
        """The queue in the database; missing tables are made.

        Args:
            url: Result of `resolve_url`.
            patience: Limits on waiting for a locked or lost database; None = 90 s.

        Raises:
            StoreError: The database cannot be reached, read or written, or the driver is missing.
            SchemaVersionError: A newer release wrote the database.
        """
        database = Database.open(url, must_exist=False, patience=patience or Patience())
        try:
            database.make_tables(make_missing)
        except BaseException:
            database.close()
            raise
        return cls(database)

    def num_changes(self) -> int:
        """Number of changes of the queue so far, by all servers; events do not count."""
        return self._database.read(lambda connection: int(connection.execute(select(queue.c.changes)).scalar_one()))

    def _change(self, operation: Callable[[Connection], T], is_change: Callable[[T], bool] = lambda _: True) -> T:
        """Changes the queue under the queue's lock: changes of all servers happen in turn.

        Args:
            operation: Reads and writes.
            is_change: Whether a result of the operation is a change for others to see.
        """

        def run(connection: Connection) -> T:
            connection.execute(update(queue).values(changes=queue.c.changes))  # locks the row
            result = operation(connection)
            if is_change(result):
                connection.execute(update(queue).values(changes=queue.c.changes + 1))
            return result

        return self._changes.run(run)

    # Jobs

    def submit(
        self, request: JobRequest, *, now: datetime, key: str | None = None, digest: str = ""
    ) -> tuple[JobRecord, bool]:
        """The new job, and True; for a repeated request the job of the first request, and False.

        Args:
            request: A checked request.
            now: The present moment.
            key: Idempotency key; None = every request is new.
            digest: Digest of the request's body; a repeated key must come with an equal digest.

        Raises:
            StudyExistsError: The key belongs to another request, or an unfinished job has the study's name.
        """
        job_id = secrets.token_hex(6)
        request = replace(request, study=request.study.replace("{id}", job_id))

        def add(connection: Connection) -> tuple[JobRecord, bool]:
            known = _job_with_key(connection, key)
            if known is not None:
                if known["request_digest"] != digest:
                    raise StudyExistsError(
                        f"The idempotency key {key!r} belongs to another request.", "Use a new key for a new job."
                    )
                return job_from_row(known), False
            _check_study_is_free(connection, request.study)
            row = _new_row(request, job_id, now)
            connection.execute(insert(jobs).values(**row, idempotency_key=key, request_digest=digest))
            job_leases.tell_status(connection, _job(connection, job_id), now=now)
            return _job(connection, job_id), True

        return self._change(add)

    def has_key(self, key: str) -> bool:
        """Whether a job was submitted with the idempotency key."""
        return self._database.read(lambda connection: _job_with_key(connection, key) is not None)

    def job(self, job_id: str) -> JobRecord:
        """The job.

        Raises:
            StudyNotFoundError: The queue has no such job.
        """
        return self._database.read(lambda connection: _job(connection, job_id))

    def jobs(
        self,
        *,
        statuses: Sequence[JobStatus] = (),
        before: int | None = None,
        limit: int = 100,
    ) -> tuple[JobRecord, ...]:
        """Jobs without documents, the newest first.

        Args:
            statuses: Only jobs in these states; empty = all.
            before: Only jobs with a smaller number; None = from the newest.
            limit: Most jobs.
        """
        query = select(*job_leases.SHORT).order_by(jobs.c.number.desc()).limit(limit)
        if statuses:
            query = query.where(jobs.c.status.in_([status.value for status in statuses]))
        if before is not None:
            query = query.where(jobs.c.number < before)

        def read(connection: Connection) -> tuple[JobRecord, ...]:
            return tuple(job_from_row(row) for row in connection.execute(query).mappings())

        return self._database.read(read)

    def job_ids(self, numbers: Sequence[int]) -> dict[int, str]:
        """Ids of jobs by number."""
        query = select(jobs.c.number, jobs.c.job_id).where(jobs.c.number.in_(list(numbers)))
        return self._database.read(lambda connection: {row[0]: row[1] for row in connection.execute(query).all()})

    def documents(self, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
        """The documents of `search --json` by number of the job; jobs without a document are left out."""
        query = select(jobs.c.number, jobs.c.document).where(jobs.c.document.is_not(None))

        def read(connection: Connection) -> dict[int, dict[str, Any]]:
            rows = connection.execute(query.where(jobs.c.number.in_(list(numbers)))).all()
            return {number: json.loads(document) for number, document in rows}

        return self._database.read(read)

    def num_jobs(self) -> dict[JobStatus, int]:
        """Number of jobs by state."""
        query = select(jobs.c.status, func.count()).group_by(jobs.c.status)
        return self._database.read(
            lambda connection: {JobStatus(status): num for status, num in connection.execute(query).all()}
        )

    def config_of(self, study: str) -> str | None:
        """The tuned config of the newest finished job of the study; None without."""
        query = select(jobs.c.config).where(jobs.c.study == study, jobs.c.config.is_not(None))
        newest = query.order_by(jobs.c.number.desc()).limit(1)
        return self._database.read(lambda connection: connection.execute(newest).scalar())

    def want(self, job_id: str, wish: Wish, *, now: datetime) -> JobRecord:
        """The job after a wish of the user: a queued job changes at once, a running job through the worker.

        Raises:
            StudyNotFoundError: The queue has no such job.
            StudyExistsError: The job is in a state without such a change.
        """

        def change(connection: Connection) -> JobRecord:
            job = _job(connection, job_id)
            job_leases.apply_wish(connection, job, wish, now=now)
            return _job(connection, job_id)

        return self._change(change)

    def resume(self, job_id: str, *, now: datetime) -> JobRecord:
        """The job, queued again after a pause or a stop.

        Raises:
            StudyNotFoundError: The queue has no such job.
            StudyExistsError: The job is neither paused nor stopped.
        """

        def change(connection: Connection) -> JobRecord:
            job_leases.requeue(connection, _job(connection, job_id), now=now)
            return _job(connection, job_id)

        return self._change(change)

    # Events

    def events(self, number: int, *, after: int = 0, limit: int = 500) -> tuple[tuple[int, str], ...]:
        """(id, JSON text) of the job's events with larger ids, in order."""
        query = select(events.c.event_id, events.c.document).where(events.c.number == number, events.c.event_id > after)
        ordered = query.order_by(events.c.event_id).limit(limit)

        def read(connection: Connection) -> tuple[tuple[int, str], ...]:
            return tuple((event_id, document) for event_id, document in connection.execute(ordered).all())

        return self._database.read(read)

    def heads(self, numbers: Sequence[int]) -> dict[int, tuple[int, str, str | None]]:
        """Number of events, state and latest progress (JSON text) of each job, by number of the job."""
        query = select(jobs.c.number, jobs.c.num_events, jobs.c.status, jobs.c.progress)

        def read(connection: Connection) -> dict[int, tuple[int, str, str | None]]:
            rows = connection.execute(query.where(jobs.c.number.in_(list(numbers)))).all()
            return {number: (num, status, progress) for number, num, status, progress in rows}

        return self._database.read(read)

    # Workers

    def register(self, worker: WorkerRecord) -> WorkerRecord:
        """The worker as stored: a known worker keeps the state, and earlier processes lose the right to speak."""
        return self._change(lambda connection: job_workers.register(connection, worker))

    def workers(self) -> tuple[WorkerRecord, ...]:
        """All workers, by name."""
        query = select(workers).order_by(workers.c.worker_id)
        return self._database.read(
            lambda connection: tuple(worker_from_row(row) for row in connection.execute(query).mappings())
        )

    def set_worker_status(self, worker_id: str, status: WorkerStatus, reason: str = "") -> WorkerRecord:
        """The worker in the new state; READY forgives earlier failures.

        Raises:
            StudyNotFoundError: The queue has no such worker.
        """
        return self._change(lambda connection: job_workers.set_status(connection, worker_id, status, reason))

    def wanted_workers(self, worker_ids: Collection[str]) -> set[str]:
        """Those of the workers with the project and the class of a job with room for a further worker."""
        return self._database.read(lambda connection: job_leases.wanted_workers(connection, worker_ids))

    # Leases

    def grant(
        self, worker_id: str, session: str, *, now: datetime, alive_s: float
    ) -> tuple[LeaseRecord, JobRecord] | None:
        """The worker's lease with the job: the held lease, or a new lease for a worker without any; None without work.

        Args:
            worker_id: The worker.
            session: Process of the worker.
            now: The present moment.
            alive_s: Longest time since the last sign of life of a worker that counts as alive, in seconds.

        Raises:
            StudyNotFoundError: The queue has no such worker.
            StudyExistsError: A later process of the same worker has registered.
        """
        return self._change(
            lambda connection: job_leases.grant(connection, worker_id, session, now=now, alive_s=alive_s),
            lambda found: found is not None,
        )

    def heartbeats(self, beats: Sequence[Heartbeat], *, now: datetime) -> list[tuple[Order, int] | AutotuneError]:
        """For each heartbeat the order for the worker, and the number of events received for the lease so far.

        In place of an answer stands StudyNotFoundError for an unknown lease, and LeaseLostError for a lease that has
        ended or belongs to another worker.
        """
        return self._heartbeats.run(lambda connection: job_heartbeats.heartbeats(connection, beats, now=now))

    def heartbeat(self, beat: Heartbeat, *, now: datetime) -> tuple[Order, int]:
        """The answer to one heartbeat.

        Raises:
            StudyNotFoundError: There is no such lease.
            LeaseLostError: The lease belongs to another worker or fence, or has ended.
        """
        (answer,) = self.heartbeats([beat], now=now)
        if isinstance(answer, AutotuneError):
            raise answer
        return answer

    def complete(self, lease_id: str, fence: int, end: LeaseEnd, *, now: datetime, alive_s: float) -> bool:
        """Whether the end counts. A late end, by an older fence, is kept as evidence and does not count.

        Raises:
            StudyNotFoundError: There is no such lease.
        """
        return self._change(
            lambda connection: job_leases.complete(connection, lease_id, fence, end, now=now, alive_s=alive_s)
        )

    def expire(self, *, seen_before: datetime, now: datetime) -> int:
        """Ends all leases without a sign of life since a moment, and queues their jobs again; the number of leases."""
        query = select(leases_table.c.lease_id).where(
            leases_table.c.state == LeaseState.HELD.value,
            leases_table.c.heartbeat_at < moment_to_text(seen_before),
        )
        silent = self._database.read(lambda connection: connection.execute(query.limit(1)).scalar())
        if silent is None:
            return 0
        return self._change(lambda connection: job_leases.expire(connection, seen_before=seen_before, now=now))

    def leases(
        self, *, number: int | None = None, state: LeaseState | None = None, worker_id: str | None = None
    ) -> tuple[LeaseRecord, ...]:
        """Leases in the order of grants, of one job, in one state or of one worker."""
        query = select(leases_table).order_by(leases_table.c.lease_number)
        if number is not None:
            query = query.where(leases_table.c.number == number)
        if state is not None:
            query = query.where(leases_table.c.state == state.value)
        if worker_id is not None:
            query = query.where(leases_table.c.worker_id == worker_id)
        return self._database.read(
            lambda connection: tuple(lease_from_row(row) for row in connection.execute(query).mappings())
        )

    def late_results(self) -> tuple[tuple[str, int, dict[str, Any]], ...]:
        """(lease, fence, document) of all late results."""
        return self._database.read(job_leases.late_results_in)


def has_lease(url: str, lease_id: str) -> bool:
    """Whether the database holds the lease: two URLs with the same lease lead to the same database.

    Args:
        url: Result of `resolve_url`. Nothing is written, and no table is made.
        lease_id: A lease, of any state.

    Raises:
        StoreError: The database cannot be reached, or holds no studies of autotune.
    """

    def look(connection: Connection) -> bool:
        if not inspect(connection).has_table(leases_table.name):
            return False
        query = select(leases_table.c.lease_id).where(leases_table.c.lease_id == lease_id)
        return connection.execute(query).first() is not None

    database = Database.open(url, must_exist=True, patience=Patience(), is_read_only=True)
    try:
        return database.read(look)
    finally:
        database.close()


def _job(connection: Connection, job_id: str) -> JobRecord:
    row = connection.execute(select(jobs).where(jobs.c.job_id == job_id)).mappings().one_or_none()
    if row is None:
        raise StudyNotFoundError(f"There is no job {job_id!r}.", "See the list: autotune jobs")
    return job_from_row(row)


def _job_with_key(connection: Connection, key: str | None) -> RowMapping | None:
    if key is None:
        return None
    return connection.execute(select(jobs).where(jobs.c.idempotency_key == key)).mappings().one_or_none()


def _check_study_is_free(connection: Connection, study: str) -> None:
    query = select(jobs.c.job_id).where(jobs.c.study == study).limit(1)
    holder = connection.execute(query).scalar()
    if holder is not None:
        raise StudyExistsError(
            f"Job {holder} has the study {study!r} already.", "Resume that job, or give another name with --study."
        )


def _new_row(request: JobRequest, job_id: str, now: datetime) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "created_at": moment_to_text(now),
        "study": request.study,
        "project": request.project,
        "script": request.script,
        "args": to_json(list(request.args)),
        "options": to_json(dict(request.options)),
        "machines": request.machines,
        "status": JobStatus.QUEUED.value,
        "wanted": Wish.NOTHING.value,
        "fence": 0,
        "is_shareable": False,
        "num_losses": 0,
        "num_events": 0,
    }
