"""A server ends when told, whatever its database does."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.client import UnreachableError
from autotune.client.connection import Connection
from tests.contract.private_servers import postgresql
from tests.service.servers import service

LIMIT_S = 60.0
"""Below the time for which the server waits for a lost database."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    yield from postgresql()


@pytest.mark.parametrize("num_signals", [1, 2])
def test_a_server_ends_when_told_although_its_database_hangs(root: Path, cluster: Any, num_signals: int) -> None:
    (root / "demo").mkdir()
    with service(root, {"demo": root / "demo"}, cluster.new_url()) as team:
        server = team.serve("--no-worker")
        postgres = [process for process in psutil.process_iter() if str(cluster.data) in " ".join(_words(process))]
        stopped = [*postgres, *(child for process in postgres for child in process.children())]
        for process in stopped:
            process.suspend()
        try:
            api = Connection(team.url, team.token_file.read_text().strip(), timeout_s=2.0)
            with pytest.raises(UnreachableError):
                api.json("GET", "/healthz")
            for _ in range(num_signals):
                server.popen.send_signal(signal.SIGTERM)
            assert server.popen.wait(LIMIT_S) == 0, server.talk()
        finally:
            for process in reversed(stopped):
                process.resume()
    assert "without waiting further for the database" in server.talk()


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
