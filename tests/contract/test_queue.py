"""The queue of the service on each database that can be had here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.errors import StoreError
from autotune.store.job_queue import JobQueue
from autotune.store.repository import Repository
from autotune.store.url import resolve_url

from .private_servers import MariadbServer, PostgresqlCluster, mariadb, postgresql
from .queue_contract import QueueContract


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresqlCluster]:
    yield from postgresql()


@pytest.fixture(scope="module")
def server() -> Iterator[MariadbServer]:
    yield from mariadb()


class TestSqlite(QueueContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return resolve_url(str(tmp_path / "queue.db"), tmp_path)

    def test_a_database_without_a_server_has_no_queue(self, url: str) -> None:
        Repository.open(url).close()
        assert b"autotune_jobs" not in Path(url.removeprefix("sqlite:///")).read_bytes()

    def test_the_database_of_another_program_stays_as_it_is(self, tmp_path: Path) -> None:
        import sqlite3

        path = tmp_path / "theirs.db"
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE theirs (n INTEGER)")
        connection.commit()
        connection.close()
        before = path.read_bytes()
        with pytest.raises(StoreError, match="another program"):
            JobQueue.open(resolve_url(str(path), tmp_path))
        assert path.read_bytes() == before


class TestPostgresql(QueueContract):
    @pytest.fixture
    def url(self, cluster: PostgresqlCluster) -> str:
        return cluster.new_url()


class TestMysql(QueueContract):
    @pytest.fixture
    def url(self, server: MariadbServer) -> str:
        return resolve_url(server.new_url(), Path("/"))
