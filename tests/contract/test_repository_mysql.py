"""The repository on a MySQL or MariaDB server that the environment names, such as mysql://root@127.0.0.1."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

from autotune.store.url import resolve_url

from .repository_contract import RepositoryContract

SERVER = "AUTOTUNE_TEST_MYSQL_URL"

pytestmark = pytest.mark.slow

if not os.environ.get(SERVER):
    pytest.skip(f"{SERVER} names no MySQL server on which databases may be made and dropped", allow_module_level=True)


@pytest.fixture(scope="module")
def server() -> Iterator[Engine]:
    server = create_engine(resolve_url(os.environ[SERVER], Path("/")))
    yield server
    server.dispose()


class TestMysql(RepositoryContract):
    can_undo_table_changes = False

    @pytest.fixture
    def url(self, server: Engine) -> Iterator[str]:
        name = f"autotune_test_{uuid.uuid4().hex}"
        with server.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        yield server.url.set(database=name).render_as_string(hide_password=False)
        with server.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name}")
