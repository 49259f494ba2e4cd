from __future__ import annotations

import sys

import pytest
from sqlalchemy import make_url
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import IntegrityError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.schema import CreateTable

from autotune.errors import StoreError
from autotune.store.engine import engine_options, open_engine
from autotune.store.faults import explain, is_transient
from autotune.store.tables import metadata

SERVER = make_url("postgresql+psycopg://ada:s3cret@db/tuning?sslpassword=s3cret")


class DriverError(Exception):
    """As the drivers raise it: with a code in one of their places."""

    def __init__(self, *args: object, sqlite_errorname: str = "", sqlstate: str = "") -> None:
        super().__init__(*args)
        if sqlite_errorname:
            self.sqlite_errorname = sqlite_errorname
        if sqlstate:
            self.sqlstate = sqlstate


def wrapped(*args: object, sqlite: str = "", sqlstate: str = "") -> OperationalError:
    return OperationalError(
        "SELECT 1", {"command": "s3cret"}, DriverError(*args, sqlite_errorname=sqlite, sqlstate=sqlstate)
    )


@pytest.mark.parametrize(
    ("url", "module", "driver"),
    [("postgresql+psycopg://db/x", "psycopg", "psycopg[binary]"), ("mysql+pymysql://db/x", "pymysql", "pymysql")],
)
def test_a_missing_driver_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, url: str, module: str, driver: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(StoreError, match=f"driver {module} ") as caught:
        open_engine(url)
    assert f"pip install '{driver}'" in caught.value.hint


@pytest.mark.parametrize("url", ["nosuch://db/x", "sqlite+aiosqlite:////x.db", "postgresql+nosuch://db/x", "x.db"])
def test_an_engine_that_cannot_be_had_is_a_sentence(url: str) -> None:
    with pytest.raises(StoreError):
        open_engine(url)


def test_limits_in_time_are_the_drivers_own_arguments() -> None:
    assert engine_options("sqlite:////x.db")["connect_args"]["timeout"] >= 60
    assert engine_options("sqlite:////x.db", busy_s=5.0)["connect_args"]["timeout"] == 5.0
    for url in ("postgresql+psycopg://db/x", "mysql+pymysql://db/x"):
        options = engine_options(url)
        assert options["connect_args"]["connect_timeout"] <= 10
        assert options["pool_pre_ping"] is True


@pytest.mark.parametrize(
    ("code", "words", "transient"),
    [
        ("SQLITE_NOTADB", "is not an SQLite database", False),
        ("SQLITE_CORRUPT", "is damaged", False),
        ("SQLITE_CORRUPT_INDEX", "is damaged", False),
        ("SQLITE_BUSY", "is locked by another process", True),
        ("SQLITE_BUSY_SNAPSHOT", "is locked by another process", True),
        ("SQLITE_READONLY_DIRECTORY", "read-only", False),
        ("SQLITE_FULL", "the disk is full", False),
        ("SQLITE_CANTOPEN", "cannot be opened", True),
        ("SQLITE_IOERR_FSYNC", "its disk failed", True),
        ("SQLITE_ERROR", "failed: no such table", False),
    ],
)
def test_every_fault_of_sqlite_has_its_sentence(code: str, words: str, transient: bool) -> None:
    error = wrapped("no such table", sqlite=code)
    told = explain(error, make_url("sqlite:////home/ada/my.db"))
    assert words in told.message
    assert "/home/ada/my.db" in told.message
    assert told.hint
    assert is_transient(error) is transient


@pytest.mark.parametrize(
    ("error", "words", "transient"),
    [
        (wrapped("connection refused"), "cannot be reached: connection refused", True),
        (wrapped("terminating connection", sqlstate="57P01"), "cannot be reached", True),
        (wrapped("too many clients", sqlstate="53300"), "cannot be reached", True),
        (wrapped("password authentication failed", sqlstate="28P01"), "cannot be reached: password", False),
        (wrapped("could not extend file", sqlstate="53100"), "cannot grow", False),
        (wrapped("syntax error", sqlstate="42601"), "failed: syntax error", False),
        (wrapped(2003, "Can't connect"), "cannot be reached: Can't connect", True),
        (wrapped(2013, "Lost connection", sqlstate="HY000"), "cannot be reached: Lost", True),
        (wrapped(1213, "Deadlock found"), "Deadlock", True),
        (wrapped(1045, "Access denied"), "cannot be reached: Access denied", False),
        (wrapped(1114, "The table is full"), "cannot grow", False),
        (wrapped(1267, "Illegal mix of collations"), "failed: Illegal mix", False),
        (InterfaceError("SELECT 1", {}, DriverError("connection already closed")), "cannot be reached", True),
        (PoolTimeoutError("QueuePool limit"), "cannot be reached", True),
        (IntegrityError("INSERT", {}, DriverError("duplicate", sqlstate="23505")), "failed: duplicate", False),
        (SQLAlchemyError("no dialect"), "failed: no dialect", False),
    ],
)
def test_every_fault_of_a_server_has_its_sentence(error: SQLAlchemyError, words: str, transient: bool) -> None:
    assert words in explain(error, SERVER).message
    assert is_transient(error) is transient


def test_no_sentence_shows_a_secret_of_the_url_or_of_the_statement() -> None:
    told = explain(wrapped("no login for ada with 's3cret' at token=abc\nDETAIL: s3cret"), SERVER)
    assert "s3cret" not in str(told)
    assert "abc" not in str(told)


def test_what_is_no_database_error_never_passes() -> None:
    assert not is_transient(None)
    assert not is_transient(OSError("gone"))


@pytest.mark.parametrize("dialect", [sqlite.dialect(), postgresql.dialect(), mysql.dialect()])
def test_the_tables_can_be_written_for_every_database(dialect: object) -> None:
    for table in metadata.sorted_tables:
        assert table.name.startswith("autotune_")
        statement = str(CreateTable(table).compile(dialect=dialect))
        if isinstance(dialect, mysql.dialect):
            assert " TEXT" not in statement  # it ends at 64 KiB there
            assert "ENGINE=InnoDB" in statement
