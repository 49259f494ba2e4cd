"""The repository on MariaDB, by the driver for MySQL: a private server of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.store.url import resolve_url

from .private_servers import MariadbServer, mariadb
from .repository_contract import RepositoryContract


@pytest.fixture(scope="module")
def server() -> Iterator[MariadbServer]:
    yield from mariadb()


class TestMysql(RepositoryContract):
    can_undo_table_changes = False

    @pytest.fixture
    def url(self, server: MariadbServer) -> str:
        return resolve_url(server.new_url(), Path("/"))
