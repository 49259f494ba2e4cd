"""The repository on MariaDB, by the driver for MySQL: a private server of the tests."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.store.url import resolve_url

from .private_servers import MariadbServer, find_binary
from .repository_contract import RepositoryContract


@pytest.fixture(scope="module")
def server() -> Iterator[MariadbServer]:
    install_db, mariadbd = find_binary("mariadb-install-db"), find_binary("mariadbd")
    if install_db is None or mariadbd is None:
        pytest.skip("no MariaDB server is installed (mariadb-install-db and mariadbd were not found)")
    if importlib.util.find_spec("pymysql") is None:
        pytest.skip("the driver pymysql is not installed (the extra `mysql`)")
    server = MariadbServer(install_db, mariadbd)
    yield server
    server.remove()


class TestMysql(RepositoryContract):
    can_undo_table_changes = False

    @pytest.fixture
    def url(self, server: MariadbServer) -> str:
        return resolve_url(server.new_url(), Path("/"))
