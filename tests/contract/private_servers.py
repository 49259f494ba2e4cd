"""Private database servers for the tests: an unprivileged user, a socket in a temporary folder, no port."""

from __future__ import annotations

import abc
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

START_LIMIT_S = 60.0


def find_binary(name: str) -> str | None:
    """Path of a server's program; Debian keeps PostgreSQL's outside PATH, and MariaDB's out of a user's."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is not None:
        return found
    candidates = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(candidates[-1]) if candidates else None


class PrivateServer(abc.ABC):
    """A server that can be stopped and started; every `new_url` is an empty database."""

    stops_at: ClassVar[signal.Signals]
    """Ends all sessions at once, in good order."""
    dies_at: ClassVar[signal.Signals]
    """Ends it without writing anything."""

    def __init__(self, install: Sequence[str], serve: Sequence[str], prefix: str) -> None:
        self._serve = serve
        self.folder = Path(tempfile.mkdtemp(prefix=prefix))  # short: a socket's path has at most 107 characters
        self.data = self.folder / "data"
        self._log = self.folder / "log"
        path = os.pathsep.join([os.defpath, "/usr/sbin"])
        self._identity: dict[str, Any] = {"env": {"PATH": path, "LC_ALL": "C"}, "cwd": "/"}
        if os.geteuid() == 0:  # such servers refuse to run as root
            nobody = pwd.getpwnam("nobody")
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
            self._identity |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        subprocess.run(self._filled(install), check=True, capture_output=True, **self._identity)
        self._process: subprocess.Popen[bytes] | None = None
        self._num_databases = 0
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._filled(self._serve), stdout=log, stderr=log, **self._identity)
        deadline = time.monotonic() + START_LIMIT_S
        while not self._accepts():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self._serve[0]} did not start: {self._log.read_text()}")
            time.sleep(0.05)

    def stop(self, how: signal.Signals | None = None) -> None:
        """Ends it by this signal; None = in good order."""
        if self._process is not None:
            self._process.send_signal(how or self.stops_at)
            self._process.wait(START_LIMIT_S)
            self._process = None

    def remove(self) -> None:
        self.stop(self.dies_at)
        shutil.rmtree(self.folder)

    def new_url(self) -> str:
        self._num_databases += 1
        name = f"tuning_{self._num_databases}"
        self._create(name)
        return self._url(name)

    def _filled(self, command: Sequence[str]) -> list[str]:
        """A command with the server's folder and that of its data in place of `{folder}` and `{data}`."""
        return [word.format(folder=self.folder, data=self.data) for word in command]

    @abc.abstractmethod
    def _accepts(self) -> bool:
        """Whether one can connect."""

    @abc.abstractmethod
    def _create(self, name: str) -> None:
        """Makes an empty database."""

    @abc.abstractmethod
    def _url(self, name: str) -> str:
        """As a user writes it."""


class PostgresqlCluster(PrivateServer):
    """PostgreSQL, by the paths of `initdb` and `postgres`."""

    stops_at, dies_at = signal.SIGINT, signal.SIGQUIT

    def __init__(self, initdb: str, postgres: str) -> None:
        install = [initdb, "-D", "{data}", "-U", "autotune", "-A", "trust", "-E", "UTF8", "--no-sync"]
        super().__init__(install, [postgres, "-D", "{data}", "-k", "{folder}", "-h", "", "-F"], "pg-")

    def _connect(self) -> Any:
        import psycopg

        return psycopg.connect(host=str(self.folder), user="autotune", dbname="postgres", autocommit=True)

    def _accepts(self) -> bool:
        import psycopg

        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _create(self, name: str) -> None:
        with self._connect() as connection:
            connection.execute(f"CREATE DATABASE {name}")

    def _url(self, name: str) -> str:
        return f"postgresql+psycopg://autotune@/{name}?host={self.folder}"


class MariadbServer(PrivateServer):
    """MariaDB, by the paths of `mariadb-install-db` and `mariadbd`."""

    stops_at, dies_at = signal.SIGTERM, signal.SIGKILL

    def __init__(self, install_db: str, mariadbd: str) -> None:
        install = [install_db, "--no-defaults", "--datadir={data}", "--auth-root-authentication-method=normal"]
        serve = [mariadbd, "--no-defaults", "--datadir={data}", "--socket={folder}/socket", "--skip-networking"]
        unsynced = ["--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync"]
        super().__init__([*install, "--skip-test-db"], [*serve, *unsynced], "my-")

    def _connect(self) -> Any:
        import pymysql

        return pymysql.connect(unix_socket=str(self.folder / "socket"), user="root", autocommit=True)

    def _accepts(self) -> bool:
        import pymysql

        if not (self.folder / "socket").exists():  # pymysql never closes the socket by which it could not connect
            return False
        try:
            self._connect().close()
        except pymysql.err.OperationalError:
            return False
        return True

    def _create(self, name: str) -> None:
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")

    def _url(self, name: str) -> str:
        return f"mysql://root@localhost/{name}?unix_socket={self.folder}/socket"


Server = TypeVar("Server", bound=PrivateServer)


def postgresql() -> Iterator[PostgresqlCluster]:
    """A server for the tests of a fixture, which are left out where there is none."""
    return _started(PostgresqlCluster, "PostgreSQL", ("initdb", "postgres"), "psycopg", "postgresql")


def mariadb() -> Iterator[MariadbServer]:
    """The same of MariaDB, by the driver for MySQL."""
    return _started(MariadbServer, "MariaDB", ("mariadb-install-db", "mariadbd"), "pymysql", "mysql")


def _started(
    kind: Callable[[str, str], Server], name: str, programs: tuple[str, str], driver: str, extra: str
) -> Iterator[Server]:
    install, serve = (find_binary(program) for program in programs)
    if install is None or serve is None:
        pytest.skip(f"no {name} server is installed ({programs[0]} and {programs[1]} were not found)")
    if importlib.util.find_spec(driver) is None:
        pytest.skip(f"the driver {driver} is not installed (the extra `{extra}`)")
    server = kind(install, serve)
    yield server
    server.remove()
