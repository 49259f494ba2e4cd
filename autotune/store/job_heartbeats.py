"""Signs of life of workers: many heartbeats in one transaction, by few statements for all.

With 200 workers the server spent most of its time on nine statements for each heartbeat (measured); now the statements
are the same eight for one heartbeat and for a hundred.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from autotune.errors import AutotuneError, LeaseLostError
from autotune.store import job_workers
from autotune.store.job_leases import PROGRESS_MADE, SHARED_FROM, SHORT, no_lease, revive
from autotune.store.job_records import Heartbeat, JobRecord, LeaseRecord, LeaseState, Order, Wish, WorkerStatus
from autotune.store.job_rows import job_from_row, lease_from_row
from autotune.store.job_tables import events, job_leases, jobs, workers
from autotune.store.rows import moment_to_text

Answer = tuple[Order, int] | AutotuneError


def heartbeats(connection: Connection, beats: Sequence[Heartbeat], *, now: datetime) -> list[Answer]:
    """Order and number of received events for every heartbeat, or the error of the heartbeat, in the same order.

    See `JobQueue.heartbeats`.
    """
    heard = _Heard(connection, now)
    heard.read({beat.lease_id for beat in beats})
    answers = [heard.answer(beat) for beat in beats]
    heard.write()
    return answers


@dataclass(slots=True)
class _Heard:
    """The leases and jobs of some heartbeats, locked until the end of the transaction, with the changes to write."""

    connection: Connection
    now: datetime
    leases: dict[str, LeaseRecord] = field(default_factory=dict)
    jobs: dict[int, JobRecord] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    """Workers that may go on."""
    alive: set[str] = field(default_factory=set)
    """Leases with a heartbeat that counts."""
    documents: list[dict[str, Any]] = field(default_factory=list)
    """Rows of new events."""
    progress: dict[int, str] = field(default_factory=dict)

    def read(self, lease_ids: Iterable[str]) -> None:
        """Reads and locks. All servers lock in the same order, so no circle of waiting servers arises."""
        wanted = job_leases.c.lease_id.in_(list(lease_ids))
        query = select(job_leases).where(wanted).order_by(job_leases.c.number, job_leases.c.lease_number)
        for row in self.connection.execute(query.with_for_update()).mappings():
            self.leases[row["lease_id"]] = lease_from_row(row)
        numbers = {lease.job_number for lease in self.leases.values()}
        query = select(*SHORT).where(jobs.c.number.in_(numbers)).order_by(jobs.c.number)
        for row in self.connection.execute(query.with_for_update()).mappings():
            self.jobs[row["number"]] = job_from_row(row)
        names = {lease.worker_id for lease in self.leases.values()}
        is_ready = workers.c.worker_id.in_(names) & (workers.c.status == WorkerStatus.READY.value)
        self.ready = set(self.connection.execute(select(workers.c.worker_id).where(is_ready)).scalars())

    def answer(self, beat: Heartbeat) -> Answer:
        """The answer to a heartbeat; the events count for the next heartbeat of the same lease or job."""
        lease = self.leases.get(beat.lease_id)
        if lease is None:
            return no_lease(beat.lease_id)
        job = self.jobs[lease.job_number]
        if lease.fence != beat.fence or not (lease.state is LeaseState.HELD or revive(self.connection, lease, job)):
            return LeaseLostError(
                f"Lease {lease.lease_id} is no longer held by worker {lease.worker_id!r}.",
                "End the search, and lease anew.",
            )
        self.alive.add(lease.lease_id)
        is_known = beat.first_event <= lease.num_events
        fresh = beat.new_events[lease.num_events - beat.first_event :] if is_known else ()
        self.documents += [
            {"number": job.number, "event_id": job.num_events + 1 + index, "document": text}
            for index, text in enumerate(fresh)
        ]
        if beat.progress is not None:
            self.progress[job.number] = beat.progress
        lease = replace(lease, state=LeaseState.HELD, num_events=lease.num_events + len(fresh))
        self.leases[lease.lease_id] = lease
        self.jobs[job.number] = replace(job, num_events=job.num_events + len(fresh))
        return self._order(job, lease), lease.num_events

    def _order(self, job: JobRecord, lease: LeaseRecord) -> Order:
        if job.wanted is Wish.CANCEL:
            return Order.CANCEL
        return Order.CONTINUE if job.wanted is Wish.NOTHING and lease.worker_id in self.ready else Order.STOP

    def write(self) -> None:
        """Writes signs of life, events and progress."""
        alive = [self.leases[lease_id] for lease_id in self.alive]
        moment = moment_to_text(self.now)
        self._each(
            update(job_leases).where(job_leases.c.lease_id == bindparam("key")),
            {lease.lease_id: {"heartbeat_at": moment, "num_events": lease.num_events} for lease in alive},
        )
        job_workers.touch(self.connection, [lease.worker_id for lease in alive], now=self.now)
        of_job = update(jobs).where(jobs.c.number == bindparam("key"))
        changed = {row["number"] for row in self.documents}
        self._each(of_job, {number: {"num_events": self.jobs[number].num_events} for number in changed})
        self._each(of_job, {number: {"progress": text} for number, text in self.progress.items()})
        if self.documents:
            self.connection.execute(insert(events), self.documents)
        self._mark(SHARED_FROM, is_shareable=True)
        self._mark(PROGRESS_MADE, num_losses=0)

    def _each(self, statement: Any, values: dict[Any, dict[str, Any]]) -> None:
        """Runs the statement for each key with the values of the key."""
        if values:
            self.connection.execute(statement, [{"key": key, **row} for key, row in values.items()])

    def _mark(self, word: str, **values: Any) -> None:
        """Sets columns of the jobs with a word in a new event."""
        numbers = {row["number"] for row in self.documents if word in row["document"]}
        if numbers:
            self.connection.execute(update(jobs).where(jobs.c.number.in_(numbers)).values(**values))
