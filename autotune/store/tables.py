"""Our tables beside Optuna's, with a version and migrations.

Columns are text if SQLite, PostgreSQL and MySQL treat a type differently: JSON is ASCII text, a moment is ISO 8601 in
UTC. To change a released table, change the table here, append a migration, and keep a database file of the old version
in the tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Engine,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    func,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.dialects import mysql

from autotune.errors import SchemaVersionError, StoreError
from autotune.store.engine import reading, transaction
from autotune.store.faults import display_name

MAX_NAME_LENGTH = 512
"""Longest study name, in characters; Optuna's own limit."""

Migration = Callable[[Connection], None]

_LOCK_NAME = "autotune_schema"
_LOCK_KEY = 0x6175746F74756E65  # "autotune" in ASCII; number of PostgreSQL's advisory lock

# MySQL's TEXT ends at 64 KiB; the raw blocks of one trial need more.
LongText = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
Moment = String(40)
TABLE_OPTIONS: dict[str, Any] = {
    f"{dialect}_{option}": value
    for dialect in ("mysql", "mariadb")
    for option, value in (("engine", "InnoDB"), ("charset", "utf8mb4"))
}

metadata = MetaData()

schema_version = Table(
    "autotune_schema", metadata, Column("version", Integer, primary_key=True, autoincrement=False), **TABLE_OPTIONS
)

studies = Table(
    "autotune_studies",
    metadata,
    Column("study_id", Integer, primary_key=True),
    Column("name", String(MAX_NAME_LENGTH), nullable=False, unique=True),
    Column("created_at", Moment, nullable=False),
    Column("status", String(64), nullable=False),
    Column("spec", LongText, nullable=False),
    Column("fingerprint", LongText, nullable=False),
    Column("memory_cap_bytes", BigInteger),
    Column("facts", LongText),
    Column("natural_settings", LongText),
    Column("refused", LongText, nullable=False),
    Column("layer_folder", LongText, nullable=False),
    Column("spent_s", Double, nullable=False),
    Column("result", LongText),
    **TABLE_OPTIONS,
)


def _study_column() -> Column[int]:
    return Column("study_id", Integer, ForeignKey("autotune_studies.study_id", ondelete="CASCADE"), primary_key=True)


trials = Table(
    "autotune_trials",
    metadata,
    _study_column(),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("stage", LongText, nullable=False),
    Column("outcome", String(64), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("optuna_told", Boolean, nullable=False),
    Column("started_at", Moment, nullable=False),
    Column("finished_at", Moment, nullable=False),
    Column("settings", LongText, nullable=False),
    Column("result", LongText, nullable=False),
    Column("environment", LongText, nullable=False),
    # Rate from `result` for trials measured in full, otherwise NULL; for the search of the fastest trial.
    Column("samples_per_second", Double),
    # All columns in a list of studies, so that listing does not read 10,000 results.
    Index("autotune_trials_by_rate", "study_id", "outcome", "samples_per_second", "number"),
    **TABLE_OPTIONS,
)

finals = Table(
    "autotune_finals",
    metadata,
    _study_column(),
    Column("round", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("finished_at", Moment, nullable=False),
    Column("settings", LongText, nullable=False),
    Column("result", LongText, nullable=False),
    **TABLE_OPTIONS,
)

leases = Table(
    "autotune_leases",
    metadata,
    _study_column(),
    # One lease per machine: two tuners on one machine would disturb each other's measurements.
    Column("machine", String(255), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("boot_id", String(255), nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("start_ticks", BigInteger),
    Column("heartbeat_at", Moment, nullable=False),
    **TABLE_OPTIONS,
)


def _add_rates(connection: Connection) -> None:
    """From version 1 to 2: adds a column with the rate of every trial, and an index on the column.

    MySQL commits table changes at once, so parts from an interrupted attempt are kept and not added again.
    """
    if "samples_per_second" not in {column["name"] for column in inspect(connection).get_columns(trials.name)}:
        kind = trials.c.samples_per_second.type.compile(connection.dialect)
        connection.execute(text(f"ALTER TABLE {trials.name} ADD COLUMN samples_per_second {kind}"))
    measured = select(trials.c.study_id, trials.c.number).where(trials.c.outcome == "ok")
    for study_id, number in connection.execute(measured).all():
        key = (trials.c.study_id == study_id, trials.c.number == number)
        rate = rate_in(connection.execute(select(trials.c.result).where(*key)).scalar_one())
        connection.execute(update(trials).where(*key).values(samples_per_second=rate))
    (index,) = trials.indexes
    if index.name not in {found["name"] for found in inspect(connection).get_indexes(trials.name)}:
        index.create(connection)


def rate_in(result: str) -> float | None:
    """The rate in the stored result of a trial measured in full; None if unreadable."""
    try:
        rate = json.loads(result)["measurement"]["samples_per_second"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return float(rate) if isinstance(rate, (int, float)) and not isinstance(rate, bool) else None


MIGRATIONS: tuple[Migration, ...] = (_add_rates,)
"""The n-th migration brings a database from version n to n + 1."""


def check_readable(engine: Engine, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Checks for our tables in this release's version, without a write.

    Raises:
        SchemaVersionError: The tables are of another version.
        StoreError: The database failed, or holds no tables of ours.
    """
    newest = len(migrations) + 1
    with reading(engine) as connection:
        version = _read_version(connection)
    name = display_name(engine.url)
    if version is None:
        raise StoreError(f"The database {name} holds no studies of autotune.", "Name another one with --storage.")
    if version > newest:
        raise _too_new(name, version, newest)
    if version < newest:
        raise SchemaVersionError(
            f"The database {name} is of version {version}; this release reads version {newest}.",
            "Bring it up to date: autotune studies upgrade, with the same --storage.",
        )


def _too_new(name: str, version: int, newest: int) -> SchemaVersionError:
    return SchemaVersionError(
        f"The database {name} is of version {version}; this release reads up to version {newest}.",
        "Install the newest release, or choose another database with --storage.",
    )


def _check_ours(engine: Engine, *, may_make: bool) -> None:
    """Refuses another program's database, and an empty database unless tables may be made.

    Raises:
        StoreError: The database is refused.
    """
    with reading(engine) as connection:
        tables = set(inspect(connection).get_table_names())
    if schema_version.name in tables:
        return
    # On a server a database is often shared; a file is one program's.
    is_foreign = engine.dialect.name == "sqlite" and tables and "version_info" not in tables
    if is_foreign or not may_make:
        raise StoreError(
            f"The database {display_name(engine.url)} holds no studies of autotune"
            + (f", but tables of another program: {', '.join(sorted(tables)[:3])}." if is_foreign else "."),
            "Name another one with --storage.",
        )


def migrate(engine: Engine, migrations: Sequence[Migration] = MIGRATIONS, *, may_make: bool = True) -> None:
    """Brings our tables to this release's version: makes missing tables, or runs the missing migrations in order.

    Each migration is a separate transaction (MySQL commits table changes at once in any case), so an interruption
    leaves a database at a version, never within a migration. An up-to-date database is only read. Optuna's tables
    are not touched.

    Args:
        engine: Engine of the database.
        migrations: All migrations, oldest first.
        may_make: Whether to make our tables in a database without them.

    Raises:
        SchemaVersionError: A newer release has written the database.
        StoreError: The database failed, or belongs to another program.
    """
    newest = len(migrations) + 1
    with reading(engine) as connection:
        version = _read_version(connection)
    if version == newest:
        return
    _check_ours(engine, may_make=may_make)
    with only_migrator(engine):
        while version != newest:
            with transaction(engine) as connection:
                # Read again: another process may have been here first.
                version = _read_version(connection)
                if version is None:
                    metadata.create_all(connection)
                    connection.execute(insert(schema_version).values(version=newest))
                    version = newest
                elif version > newest:
                    raise _too_new(display_name(engine.url), version, newest)
                elif version < newest:
                    migrations[version - 1](connection)
                    version += 1
                    connection.execute(update(schema_version).values(version=version))


def _read_version(connection: Connection) -> int | None:
    if not inspect(connection).has_table(schema_version.name):
        return None
    return connection.execute(select(func.max(schema_version.c.version))).scalar()


@contextmanager
def only_migrator(engine: Engine) -> Iterator[None]:
    """Keeps a second process from migrating the same database on a server; SQLite's transactions need no such lock."""
    lock, unlock = {
        "postgresql": (f"SELECT pg_advisory_lock({_LOCK_KEY})", f"SELECT pg_advisory_unlock({_LOCK_KEY})"),
        "mysql": (f"SELECT GET_LOCK('{_LOCK_NAME}', 60)", f"SELECT RELEASE_LOCK('{_LOCK_NAME}')"),
        "mariadb": (f"SELECT GET_LOCK('{_LOCK_NAME}', 60)", f"SELECT RELEASE_LOCK('{_LOCK_NAME}')"),
    }.get(engine.dialect.name, ("", ""))
    if not lock:
        yield
        return
    with reading(engine) as guard:
        guard.execute(text(lock))
        try:
            yield
        finally:
            guard.execute(text(unlock))
