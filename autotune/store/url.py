"""Makes a full URL of the user's text for a database, and masks URLs for display."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote, unquote

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from autotune.errors import StoreError
from autotune.spec import DEFAULT_STORAGE
from autotune.store.secrets import MASK, is_secret_name, remember_secrets

MOUNTS = Path("/proc/self/mountinfo")

_DRIVER_OF_SCHEME = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
_BACKENDS = ("sqlite", "postgresql", "mysql", "mariadb")
_TLS_OF_MYSQL = frozenset(
    {"ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_cert", "ssl_verify_identity", "ssl_check_hostname"}
)
_PSYCOPG = frozenset(
    {"host", "port", "options", "application_name", "client_encoding", "connect_timeout", "target_session_attrs"}
    | {
        "sslmode",
        "sslrootcert",
        "sslcert",
        "sslkey",
        "sslpassword",
        "sslcrl",
        "sslcompression",
        "ssl_min_protocol_version",
    }
    | {"channel_binding", "gssencmode", "krbsrvname", "keepalives", "keepalives_idle", "keepalives_interval"}
    | {"keepalives_count", "tcp_user_timeout"}
)
DRIVER_OPTIONS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "sqlite": frozenset({"uri", "mode", "cache", "nolock", "immutable"}),
        "sqlite+pysqlite": frozenset({"uri", "mode", "cache", "nolock", "immutable"}),
        "postgresql+psycopg": _PSYCOPG,
        "postgresql+psycopg2": _PSYCOPG,
        **{
            f"{backend}+{driver}": _TLS_OF_MYSQL | {"charset", "unix_socket", "connect_timeout"}
            for backend in ("mysql", "mariadb")
            for driver in ("pymysql", "mysqldb")
        },
    }
)
"""Allowed drivers, each with the options allowed in a URL. Other options make a driver read the user's files
(`local_infile`, `read_default_file`, `service`), run statements, or load code (`plugin`), and a URL may come with a
folder made by somebody else."""
WHAT_TO_WRITE = "Write a path such as studies/autotune.db, or a URL such as postgresql://user@host/database."
_NETWORK_TYPES = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "davfs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "smb", "smb2"}
    | {"smb3", "smbfs", "fuse.beegfs", "fuse.ceph", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs"}
    | {"fuse.juicefs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"}
)
# A login ends at the last @ of the text, because people do not escape an @, / or ? inside a password. A host and port
# before a query with an @ are masked too: a host hidden without need is better than a password shown.
_LOGIN = re.compile(r"([^:/@?]*):.*@", re.DOTALL)
_QUERY_VALUE = re.compile(r"([^?&;=]+)=([^&;]*)")


def resolve_url(text: str, cwd: Path) -> str:
    """The URL of the database, with a driver named and the path of an SQLite file absolute. Makes nothing.

    Args:
        text: A SQLAlchemy URL, or the path of an SQLite file; empty means the default storage.
        cwd: Folder at which a relative path begins.

    Raises:
        StoreError: The text is no usable URL.
    """
    text = text.strip() or DEFAULT_STORAGE
    scheme, separator, rest = text.partition("://")
    if not separator:
        if text.partition(":")[0].partition("+")[0] in (*_BACKENDS, *_DRIVER_OF_SCHEME):
            raise StoreError(f"{mask_url(text)!r} is not the URL of a database.", WHAT_TO_WRITE)
        return _sqlite_url(Path(text), cwd)
    url = _parse(f"{_DRIVER_OF_SCHEME.get(scheme, scheme)}://{_with_login_escaped(rest)}", text)
    backend = url.get_backend_name()
    if backend not in _BACKENDS:
        raise StoreError(f"Databases of the kind {backend!r} are not supported.", WHAT_TO_WRITE)
    _check_options(url)
    if url.password:
        remember_secrets([str(url.password)])
    if backend != "sqlite":
        return url.render_as_string(hide_password=False)
    if url.database in (None, "", ":memory:") or url.query.get("mode") == "memory":
        raise StoreError(f"{text!r} is a database in memory, which would be lost with the tuner.", WHAT_TO_WRITE)
    if url.database is not None and url.database.startswith("file:"):
        path = _absolute(Path(unquote(url.database.removeprefix("file:"))), cwd)
        return url.set(database=f"file:{quote(str(path))}").render_as_string(hide_password=False)
    return _sqlite_url(Path(url.database or ""), cwd, url)


def _with_login_escaped(rest: str) -> str:
    """Escapes user and password in the text after `://`, because people write @ and / in passwords unescaped."""
    before, question_mark, query = rest.partition("?")
    login, at, address = before.rpartition("@")
    if not at:
        return rest
    user, colon, password = login.partition(":")
    escaped = f"{quote(unquote(user), safe='')}{colon}{quote(unquote(password), safe='')}"
    return f"{escaped}@{address}{question_mark}{query}"


def _check_options(url: URL) -> None:
    """Refuses every driver and every option not known to be harmless.

    Raises:
        StoreError: The driver or an option is refused.
    """
    allowed = DRIVER_OPTIONS.get(url.drivername)
    if allowed is None:
        known = sorted(name for name in DRIVER_OPTIONS if "+" in name)
        raise StoreError(
            f"Databases of the kind {url.drivername!r} are not supported.",
            f"The driver is one of {', '.join(known)}; best leave it out of the URL.",
        )
    unknown = sorted(set(url.query) - allowed)
    if unknown:
        raise StoreError(
            f"The URL {mask_url(url.render_as_string(hide_password=True))} gives its driver the option {unknown[0]!r}, "
            "which is not allowed.",
            f"Leave it out; allowed are {', '.join(sorted(allowed))}.",
        )


def mask_url(url: str) -> str:
    """The URL fit to be shown: the password and secret values of the query are `***`. Never raises."""
    start, separator, rest = str(url).partition("://")
    if not separator:
        return re.sub(r":[^@\s]*@", f":{MASK}@", start)
    login = _LOGIN.match(rest)
    if login:
        rest = f"{login[1]}:{MASK}@{rest[login.end() :]}"
    address, question_mark, query = rest.partition("?")
    return f"{start}://{address}{question_mark}{_QUERY_VALUE.sub(_mask_value, query)}"


def url_without_secrets(url: str) -> str:
    """The URL without the password and without secret values of the query; still a URL for `resolve_url`.

    Args:
        url: Result of `resolve_url`.
    """
    parsed = make_url(url)
    query = {name: value for name, value in parsed.query.items() if not is_secret_name(name)}
    shown = URL.create(parsed.drivername, parsed.username, None, parsed.host, parsed.port, parsed.database, query)
    return shown.render_as_string(hide_password=False)


def _mask_value(match: re.Match[str]) -> str:
    return f"{match[1]}={MASK}" if is_secret_name(match[1]) else match[0]


def sqlite_path(url: str) -> Path | None:
    """The file of an SQLite database; None for a database server."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        return None
    if parsed.database.startswith("file:"):  # SQLite's own URI with SQLite's own escapes
        return Path(unquote(parsed.database.removeprefix("file:")))
    return Path(parsed.database)


def network_file_system(url: str, mounts: Path = MOUNTS) -> str | None:
    """Type of the network file system that holds an SQLite file; None for a local file, a server, or an unknown place.

    SQLite relies on file locks. Network file systems keep locks badly, so the caller warns.

    Args:
        url: URL from `resolve_url`.
        mounts: The kernel's table of mounts.
    """
    path = sqlite_path(url)
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    if path is None:
        return None
    real = path.resolve()
    found, depth = None, -1
    for line in lines:
        left, separator, right = line.partition(" - ")
        columns = left.split()
        if not separator or len(columns) < 5 or not right.split():
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), columns[4]))
        # Of two mounts on one point the later hides the earlier.
        if (point == real or point in real.parents) and len(point.parts) >= depth:
            found, depth = right.split()[0], len(point.parts)
    return found if found in _NETWORK_TYPES else None


def _parse(url: str, written: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        raise StoreError(f"{mask_url(written)!r} is not the URL of a database.", WHAT_TO_WRITE) from None


def _sqlite_url(path: Path, cwd: Path, url: URL | None = None) -> str:
    path = _absolute(path, cwd)
    rendered = (url or URL.create("sqlite")).set(database=str(path)).render_as_string(hide_password=False)
    if make_url(rendered).database != str(path):
        raise StoreError(f"The path {str(path)!r} cannot be written as the URL of a database.", "Rename it without ?.")
    return rendered


def _absolute(path: Path, cwd: Path) -> Path:
    """The path from the root."""
    try:
        path = cwd.absolute() / path.expanduser()
        is_folder = path.is_dir()
    except (OSError, RuntimeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise StoreError(f"The database {str(path)!r} cannot be opened: {reason}.", WHAT_TO_WRITE) from error
    if is_folder:
        raise StoreError(f"{str(path)!r} is a folder, not a database file.", WHAT_TO_WRITE)
    return path


def make_private_file(url: str) -> None:
    """Makes a missing SQLite file, readable by this user alone, and the file's missing folder; nothing for a server.

    Raises:
        StoreError: The folder cannot be made.
    """
    make_folder(url)
    path = sqlite_path(url)
    if path is not None:
        with suppress(OSError):  # The file exists, or opening the database reports the cause.
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))


def make_folder(url: str) -> None:
    """Makes the missing folder of an SQLite file; nothing for a server.

    Raises:
        StoreError: The folder cannot be made.
    """
    path = sqlite_path(url)
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if isinstance(error, (FileExistsError, NotADirectoryError)):
            reason = "a file is in its place"
        raise StoreError(
            f"The folder of the database {str(path)!r} cannot be made: {reason}.",
            "Choose another place with --storage.",
        ) from error
