"""The connection to the database: its limits in time, and transactions whose errors are sentences."""

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
"""How long SQLite waits for another writer; its default of 5 s is too short beside a parallel search."""
CONNECT_TIMEOUT_S = 8
"""An unreachable server is told within 10 s, the interpreter's start included."""
READ_TIMEOUT_S = 60
"""How long a server may take for one answer before its connection counts as dead."""

_EXTRA_OF_BACKEND = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql"}
_IMMEDIATE = "autotune_immediate"


def engine_options(url: str, *, busy_s: float = math.inf, is_read_only: bool = False) -> dict[str, Any]:
    """Arguments of `sqlalchemy.create_engine` for that URL; Optuna's storage takes them too.

    Args:
        url: URL as `resolve_url` gives it.
        busy_s: Longest time for which SQLite waits for another writer.
        is_read_only: The connections write nothing.

    Raises:
        StoreError: The URL cannot be parsed.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise StoreError(f"{mask_url(url)!r} is not the URL of a database.", WHAT_TO_WRITE) from None
    # Statements carry the user's command line, which may hold a token: errors and logs show no parameters.
    options: dict[str, Any] = {"hide_parameters": True}
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        timeout_s = min(busy_s, BUSY_TIMEOUT_S)
        reader = {"creator": _reader(url, timeout_s)} if is_read_only else {}
        return {**options, "connect_args": {"timeout": timeout_s}, **reader}
    return {**options, "connect_args": _server_limits(parsed), "pool_pre_ping": True}


def _reader(url: str, timeout_s: float) -> Callable[[], sqlite3.Connection]:
    """Opens an SQLite file that is there; it is not changed, not even to mend an interrupted write."""
    path = sqlite_path(url)
    address = f"file:{quote(os.fsencode(path or ''))}?mode=ro"
    return lambda: sqlite3.connect(address, uri=True, check_same_thread=False, timeout=timeout_s)


def _server_limits(url: URL) -> dict[str, int]:
    """The driver's own arguments for limits in time; a driver that is not known here keeps its defaults."""
    try:
        driver = url.get_driver_name()
    except (ImportError, NoSuchModuleError):  # open_engine tells of it
        return {}
    if driver in ("psycopg", "psycopg2"):
        # A server that vanished without a word is noticed by the kernel in 40 s, not after its two hours.
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
            # A server could ask for any file of the user otherwise.
            "local_infile": False,
        }
    return {"connect_timeout": CONNECT_TIMEOUT_S, "local_infile": 0} if driver == "mysqldb" else {}


def open_engine(url: str, *, busy_s: float = math.inf, is_read_only: bool = False) -> Engine:
    """The engine of that database; nothing is connected yet.

    Args:
        url: URL as `resolve_url` gives it.
        busy_s: Longest time for which SQLite waits for another writer.
        is_read_only: Its connections write nothing.

    Raises:
        StoreError: The URL cannot be used, or its driver is not installed.
    """
    options = engine_options(url, busy_s=busy_s, is_read_only=is_read_only)
    parsed = make_url(url)
    try:
        engine = create_engine(parsed, **options)
    except ImportError as error:
        extra = _EXTRA_OF_BACKEND.get(parsed.get_backend_name())
        hint = f"Install it: pip install 'torch-autotune[{extra}]'" if extra else "Install the driver."
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
    """From now on the connections of this engine are refused every write by the database itself."""
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
    # Python's sqlite3 begins a transaction only before the first write: a read before it would not be in it, and
    # CREATE TABLE never is. So we say BEGIN ourselves.
    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON").close()
        # A file of somebody else's may hold views and triggers that call functions with effects.
        connection.execute("PRAGMA trusted_schema = OFF").close()

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        immediate = connection.get_execution_options().get(_IMMEDIATE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")


def wait_on_reconnect(engine: Engine, patience: Patience) -> None:
    """From now on a lost connection of this engine is opened again with patience instead of failing at once."""

    @event.listens_for(engine, "do_connect")
    def _connect(dialect: Any, _record: object, arguments: list[Any], options: dict[str, Any]) -> Any:
        lost = dialect.loaded_dbapi.OperationalError
        return patience.attempt(lambda: dialect.connect(*arguments, **options), lambda error: isinstance(error, lost))


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """A connection whose work is committed at the end of the block, and rolled back when the block raises.

    On SQLite it holds the write lock from the start, so what the block reads stays true until its end.

    Raises:
        StoreError: The database failed; the sentence names it and shows no secret.
    """
    with _begun(engine, immediate=True) as connection:
        yield connection


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection that only reads, in one snapshot where the database has them; works on a read-only file.

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
