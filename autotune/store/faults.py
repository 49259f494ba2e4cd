"""Turns a database error into one sentence for the user, without secrets; says whether waiting may help."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from autotune.errors import StoreError
from autotune.store.secrets import MASK, mask_text
from autotune.store.url import mask_url

_ELSEWHERE = "Choose another place with --storage."
_SQLITE_FAULTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "SQLITE_NOTADB": ("is not an SQLite database, or it is damaged", f"Move the file away. {_ELSEWHERE}"),
        "SQLITE_CORRUPT": (
            "is damaged",
            "Save what can be read with `sqlite3 FILE .recover`, or move the file away and start again.",
        ),
        "SQLITE_BUSY": ("is locked by another process", "End the process that holds it, and resume."),
        "SQLITE_LOCKED": ("is locked by another process", "End the process that holds it, and resume."),
        "SQLITE_PROTOCOL": ("is locked by another process", "End the process that holds it, and resume."),
        "SQLITE_READONLY_ROLLBACK": (
            "was left in the middle of a write by a process that was killed",
            "Type autotune studies upgrade, with the same --storage, if it is a database of yours: that mends it.",
        ),
        "SQLITE_READONLY": (
            "cannot be written, it is read-only",
            f"Give yourself the right to write to the file and its folder. {_ELSEWHERE}",
        ),
        "SQLITE_FULL": ("cannot grow, the disk is full", "Make room on the disk, and resume: what was stored is kept."),
        "SQLITE_CANTOPEN": (
            "cannot be opened",
            f"See whether its folder is there and may be written to. {_ELSEWHERE}",
        ),
        "SQLITE_PERM": ("may not be opened", f"Give yourself the right to read and write the file. {_ELSEWHERE}"),
        "SQLITE_IOERR": ("cannot be read or written, its disk failed", f"See the system's log. {_ELSEWHERE}"),
    }
)
_SQLITE_TRANSIENT = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL", "SQLITE_CANTOPEN", "SQLITE_IOERR")
_POSTGRESQL_TRANSIENT = ("08", "40", "53", "55", "57")
"""Classes of SQLSTATE: connection, rollback, resources, lock, operator intervention."""
_MYSQL_TRANSIENT = frozenset({"1040", "1053", "1158", "1159", "1160", "1161", "1205", "1213", "1927"})
"""Passing errors of the server: too many connections, shutdown, network, lock, deadlock. The client's errors, 2000 to
2999, are all about the connection."""
_DISK_FULL = frozenset({"53100", "1021", "1114"})
_LOGIN_REFUSED = ("28", "3D", "1044", "1045", "1049", "1698")


def explain(error: SQLAlchemyError, url: URL) -> StoreError:
    """The error for the user: names the database and the remedy, and shows no secret."""
    name = f"The database {display_name(url)}"
    origin = error.orig if isinstance(error, DBAPIError) else None
    reason = _reason(origin or error, url)
    code = _code(origin)
    for start, (fault, hint) in _SQLITE_FAULTS.items():
        if code == start or code.startswith(f"{start}_"):
            return StoreError(f"{name} {fault}.", hint)
    if code in _DISK_FULL:
        return StoreError(f"{name} cannot grow: {reason}.", "Make room on the server's disk, and resume.")
    if is_transient(error) or code.startswith(_LOGIN_REFUSED):
        return StoreError(f"{name} cannot be reached: {reason}.", "See whether the server runs and the login is right.")
    return StoreError(f"{name} failed: {reason}.", "See whether another program has changed its tables.")


def is_transient(error: BaseException | None) -> bool:
    """Whether a second attempt may succeed: the database was locked, restarted or out of reach."""
    if isinstance(error, PoolTimeoutError):
        return True
    if not isinstance(error, DBAPIError):
        return False
    code = _code(error.orig)
    if code.startswith("SQLITE_"):
        return code.startswith(_SQLITE_TRANSIENT)
    if error.connection_invalidated or not code:
        return error.connection_invalidated or isinstance(error, (OperationalError, InterfaceError))
    if code.isdigit() and len(code) == 4:
        return code.startswith("2") or code in _MYSQL_TRANSIENT
    return code.startswith(_POSTGRESQL_TRANSIENT) and code not in _DISK_FULL


def may_pass(error: Exception) -> bool:
    """Whether an error from `explain` may pass by itself."""
    return isinstance(error, StoreError) and is_transient(error.__cause__)


def _code(origin: BaseException | None) -> str:
    """SQLite's name of the error, MySQL's number of four digits, PostgreSQL's SQLSTATE of five; empty if unknown."""
    name = getattr(origin, "sqlite_errorname", None)
    if name:
        return str(name)
    if origin is not None and len(origin.args) >= 2 and isinstance(origin.args[0], int) and origin.args[0] > 0:
        return f"{origin.args[0]:04d}"
    return str(getattr(origin, "sqlstate", None) or getattr(origin, "pgcode", None) or "")


def display_name(url: URL) -> str:
    """The database's name for people: the path of a file, or a server's URL without secrets."""
    if url.get_backend_name() == "sqlite" and url.database:
        return url.database
    return mask_url(url.render_as_string(hide_password=True))


def _reason(error: BaseException, url: URL) -> str:
    """First line of the driver's own message; MySQL's message comes after a number."""
    words = error.args[1] if len(error.args) == 2 and isinstance(error.args[1], str) else str(error)
    lines = words.strip().splitlines()
    line = lines[0].strip().rstrip(".") if lines else type(error).__name__
    if url.password:
        line = line.replace(str(url.password), MASK)
    return mask_text(line)
