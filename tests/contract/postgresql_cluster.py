"""A private PostgreSQL server for the tests: an unprivileged user, a socket in a temporary folder, no port."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

START_LIMIT_S = 60.0


def find_binary(name: str) -> str | None:
    """Path of `initdb` or `postgres`; Debian keeps them outside PATH."""
    found = shutil.which(name)
    if found is not None:
        return found
    candidates = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(candidates[-1]) if candidates else None


class PostgresqlCluster:
    """A server that can be stopped and started; every `new_url` is an empty database."""

    def __init__(self, initdb: str, postgres: str) -> None:
        self._postgres = postgres
        self._folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: a socket's path has at most 107 characters
        self._data = self._folder / "data"
        self._log = self._folder / "log"
        self._identity: dict[str, Any] = {"env": {"PATH": os.defpath, "LC_ALL": "C"}, "cwd": "/"}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            nobody = pwd.getpwnam("nobody")
            os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)
            self._identity |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        subprocess.run(
            [initdb, "-D", str(self._data), "-U", "autotune", "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True,
            capture_output=True,
            **self._identity,
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._num_databases = 0
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._postgres, "-D", str(self._data), "-k", str(self._folder), "-h", "", "-F"],
                stdout=log,
                stderr=log,
                **self._identity,
            )
        deadline = time.monotonic() + START_LIMIT_S
        while not self._accepts():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {self._log.read_text()}")
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Ends all sessions at once; SIGINT in good order, SIGQUIT without writing anything."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_LIMIT_S)
            self._process = None

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self._folder)

    def new_url(self) -> str:
        self._num_databases += 1
        name = f"tuning_{self._num_databases}"
        with self._connect() as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql+psycopg://autotune@/{name}?host={self._folder}"

    def _connect(self) -> Any:
        import psycopg

        return psycopg.connect(host=str(self._folder), user="autotune", dbname="postgres", autocommit=True)

    def _accepts(self) -> bool:
        import psycopg

        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True
