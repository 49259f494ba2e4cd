"""Connections to the database: time limits, and transactions with errors in plain sentences."""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from autotune.errors import StoreError
from autotune.store.faults import explain
from autotune.store.retry import Patience
from autotune.store.url import WHAT_TO_WRITE, mask_url, sqlite_path

BUSY_TIMEOUT_S = 60.0
"""Longest wait of SQLite for another writer; the default of 5 s is too short beside a parallel search."""
CONNECT_TIMEOUT_S = 8
"""With this limit an unreachable server is reported within 10 s, the interpreter's start included."""
READ_TIMEOUT_S = 60
"""Longest time of a server for one answer; after it the connection counts as dead."""

_DRIVER_OF_BACKEND = {"postgresql": "psycopg[binary]", "mysql": "pymysql", "mariadb": "pymysql"}
_IMMEDIATE = "autotune_immediate"


def engine_options(url: str, *, busy_s: float = math.inf, is_read_only: bool = False) -> dict[str, Any]:
    """Arguments of `sqlalchemy.create_engine` for the URL, and of Optuna's storage too.

    Args:
        url: Result of `resolve_url`.
        busy_s: Longest wait of SQLite for another writer.
        is_read_only: Whether connections are refused every write.

    Raises:
        StoreError: The URL cannot be parsed.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise StoreError(f"{mask_url(url)!r} is not the URL of a database.", WHAT_TO_WRITE) from None
    # Parameters of statements may hold a token of the user's command line: errors and logs leave parameters out.
    options: dict[str, Any] = {"hide_parameters": True}
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        timeout_s = min(busy_s, BUSY_TIMEOUT_S)
        reader = {"creator": _reader(url, timeout_s)} if is_read_only else {}
        return {**options, "connect_args": {"timeout": timeout_s}, **reader}
    return {**options, "connect_args": _server_limits(parsed), "pool_pre_ping": True}


def _reader(url: str, timeout_s: float) -> Callable[[], sqlite3.Connection]:
    """A function to open an existing SQLite file without any change, not even to mend an interrupted write."""
    path = sqlite_path(url)
    address = f"file:{quote(os.fsencode(path or ''))}?mode=ro"
    return lambda: sqlite3.connect(address, uri=True, check_same_thread=False, timeout=timeout_s)


def _server_limits(url: URL) -> dict[str, int]:
    """The driver's own arguments for time limits; empty for unknown drivers."""
    try:
        driver = url.get_driver_name()
    except (ImportError, NoSuchModuleError):  # open_engine reports it
        return {}
    if driver in ("psycopg", "psycopg2"):
        # With these the kernel notices a vanished server in 40 s instead of two hours.
        return {
            "connect_timeout": CONNECT_TIMEOUT_S,
            "keepalives_idle": 20,
            "keepalives_interval": 5,
            "keepalives_count": 4,
        }
    if driver == "pymysql":
        return {
            "connect_timeout": CONNECT_TIMEOUT_S,
            "read_timeout": READ_TIMEOUT_S,
            "write_timeout": READ_TIMEOUT_S,
            # Keeps a server from asking for any file of the user.
            "local_infile": False,
        }
    return {"connect_timeout": CONNECT_TIMEOUT_S, "local_infile": 0} if driver == "mysqldb" else {}


def open_engine(url: str, *, busy_s: float = math.inf, is_read_only: bool = False) -> Engine:
    """The engine of the database, before any connection.

    Args:
        url: Result of `resolve_url`.
        busy_s: Longest wait of SQLite for another writer.
        is_read_only: Whether connections are refused every write.

    Raises:
        StoreError: The URL cannot be used, or the driver is not installed.
    """
    options = engine_options(url, busy_s=busy_s, is_read_only=is_read_only)
    parsed = make_url(url)
    try:
        engine = create_engine(parsed, **options)
    except ImportError as error:
        driver = _DRIVER_OF_BACKEND.get(parsed.get_backend_name())
        hint = f"Install it: pip install '{driver}'." if driver else "Install the driver."
        missing = error.name or parsed.get_driver_name()
        raise StoreError(f"The driver {missing} of the database {mask_url(url)} is not installed.", hint) from error
    except (NoSuchModuleError, ArgumentError) as error:
        kind = parsed.drivername
        hint = "Use sqlite, postgresql or mysql."
        raise StoreError(f"Databases of the kind {kind!r} are not supported.", hint) from error
    if engine.dialect.is_async:
        raise StoreError(f"The driver {engine.driver} is asynchronous.", "Leave the driver out of the URL.")
    if engine.dialect.name == "sqlite":
        _prepare_sqlite(engine)
    if is_read_only:
        write_nothing(engine)
    return engine


def write_nothing(engine: Engine) -> None:
    """Makes the database itself refuse every write by new connections of the engine."""
    statement = {
        "sqlite": "PRAGMA query_only = ON",
        "postgresql": "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    }.get(engine.dialect.name, "SET SESSION TRANSACTION READ ONLY")

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(statement)
        cursor.close()
        connection.commit()


def _prepare_sqlite(engine: Engine) -> None:
    # Python's sqlite3 begins a transaction only before the first write, so earlier reads and every CREATE TABLE stay
    # outside. We therefore send BEGIN ourselves.
    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON").close()
        # A stranger's file may hold views and triggers that call functions with effects.
        connection.execute("PRAGMA trusted_schema = OFF").close()

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        immediate = connection.get_execution_options().get(_IMMEDIATE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


def wait_on_reconnect(engine: Engine, patience: Patience) -> None:
    """Makes the engine open lost connections again with patience instead of failing at once."""

    @event.listens_for(engine, "do_connect")
    def _connect(dialect: Any, _record: object, arguments: list[Any], options: dict[str, Any]) -> Any:
        lost = dialect.loaded_dbapi.OperationalError
        return patience.attempt(lambda: dialect.connect(*arguments, **options), lambda error: isinstance(error, lost))


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """A connection in a transaction: committed at the end of the block, rolled back if the block raises.

    On SQLite the transaction holds the write lock from the start, so every value read in the block stays true.

    Raises:
        StoreError: The database failed; the message names the database and shows no secret.
    """
    with _begun(engine, immediate=True) as connection:
        yield connection


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection for reading, in one snapshot if the database has snapshots; works on a read-only file.

    Raises:
        StoreError: The database failed.
    """
    with _begun(engine, immediate=False) as connection:
        yield connection


@contextmanager
def _begun(engine: Engine, *, immediate: bool) -> Iterator[Connection]:
    try:
        with engine.connect() as connection:
            connection.execution_options(**{_IMMEDIATE: immediate})
            with connection.begin():
                yield connection
    except SQLAlchemyError as error:
        raise explain(error, engine.url) from error
