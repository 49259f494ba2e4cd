"""The tables of the service's queue, beside the tables of studies in the same database.

The queue has a version of its own: a database without a server stays as before, and older releases go on reading the
studies beside a queue.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    func,
    insert,
    inspect,
    select,
)

from autotune.errors import SchemaVersionError
from autotune.store.tables import MAX_NAME_LENGTH, TABLE_OPTIONS, LongText, Moment

VERSION = 1
MAX_KEY_LENGTH = 200
"""Longest idempotency key, in characters."""

metadata = MetaData()

queue = Table(
    "autotune_queue",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    # Every change of the queue adds 1, so servers see the changes of other servers. The row is the queue's lock too.
    Column("changes", BigInteger, nullable=False),
    **TABLE_OPTIONS,
)

jobs = Table(
    "autotune_jobs",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("job_id", String(32), nullable=False, unique=True),
    Column("created_at", Moment, nullable=False),
    Column("started_at", Moment),
    Column("finished_at", Moment),
    Column("study", String(MAX_NAME_LENGTH), nullable=False),
    Column("project", String(64), nullable=False),
    Column("script", LongText, nullable=False),
    Column("args", LongText, nullable=False),
    Column("options", LongText, nullable=False),
    Column("machines", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    Column("wanted", String(16), nullable=False),
    Column("idempotency_key", String(MAX_KEY_LENGTH), unique=True),
    Column("request_digest", String(64), nullable=False),
    # Trials are comparable on one class of machine only, and a resume needs the same folder.
    Column("machine_class", String(64)),
    Column("folder", LongText),
    Column("fence", Integer, nullable=False),
    Column("is_shareable", Boolean, nullable=False),
    Column("num_losses", Integer, nullable=False),
    Column("num_events", Integer, nullable=False),
    Column("progress", LongText),
    Column("exit_code", Integer),
    Column("message", LongText),
    Column("document", LongText),
    Column("config", LongText),
    Index("autotune_jobs_by_status", "status", "number"),
    **TABLE_OPTIONS,
)


def _job_column(*, is_key: bool) -> Column[int]:
    return Column(
        "number", Integer, ForeignKey("autotune_jobs.number", ondelete="CASCADE"), primary_key=is_key, nullable=False
    )


events = Table(
    "autotune_job_events",
    metadata,
    _job_column(is_key=True),
    Column("event_id", Integer, primary_key=True, autoincrement=False),
    Column("document", LongText, nullable=False),
    **TABLE_OPTIONS,
)

workers = Table(
    "autotune_workers",
    metadata,
    Column("worker_id", String(128), primary_key=True),
    Column("session", String(64), nullable=False),
    Column("machine", String(255), nullable=False),
    Column("machine_class", String(64), nullable=False),
    Column("description", LongText, nullable=False),
    Column("devices", LongText, nullable=False),
    Column("cpus", LongText, nullable=False),
    Column("projects", LongText, nullable=False),
    Column("status", String(16), nullable=False),
    Column("reason", LongText, nullable=False),
    Column("registered_at", Moment, nullable=False),
    Column("seen_at", Moment, nullable=False),
    **TABLE_OPTIONS,
)

job_leases = Table(
    "autotune_job_leases",
    metadata,
    Column("lease_number", Integer, primary_key=True),
    Column("lease_id", String(32), nullable=False, unique=True),
    _job_column(is_key=False),
    Column("worker_id", String(128), nullable=False),
    Column("session", String(64), nullable=False),
    Column("machine_class", String(64), nullable=False),
    Column("fence", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("granted_at", Moment, nullable=False),
    Column("heartbeat_at", Moment, nullable=False),
    Column("ended_at", Moment),
    Column("num_events", Integer, nullable=False),
    Column("exit_code", Integer),
    Column("message", LongText),
    # Whether another worker of the class failed on the same job too; NULL before the answer.
    Column("is_shared", Boolean),
    Index("autotune_job_leases_by_worker", "worker_id", "state"),
    Index("autotune_job_leases_by_job", "number", "state"),
    Index("autotune_job_leases_by_state", "state", "heartbeat_at"),
    **TABLE_OPTIONS,
)

late_results = Table(
    "autotune_late_results",
    metadata,
    Column("late_number", Integer, primary_key=True),
    Column("lease_id", String(32), nullable=False),
    Column("fence", Integer, nullable=False),
    Column("received_at", Moment, nullable=False),
    Column("document", LongText, nullable=False),
    **TABLE_OPTIONS,
)


def make_missing(connection: Connection) -> None:
    """Makes the tables of the queue in a database without a queue.

    Raises:
        SchemaVersionError: A newer release made the queue.
    """
    version = None
    if inspect(connection).has_table(queue.name):
        version = connection.execute(select(func.max(queue.c.version))).scalar()
    if version is not None and version > VERSION:
        raise SchemaVersionError(
            f"The queue in the database is of version {version}; this release reads up to version {VERSION}.",
            "Install the newest release, or choose another database with --storage.",
        )
    if version is None:
        metadata.create_all(connection)
        connection.execute(insert(queue).values(version=VERSION, changes=0))
