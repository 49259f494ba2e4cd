"""A folder with a project, and a server without a worker for the tests of the API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.servers import Service, service


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One server without a worker, for a module."""
    root = tmp_path_factory.mktemp("service")
    for name in ("demo", "other"):
        (root / name).mkdir()
        (root / name / "train.py").write_text("print('trains')\n")
    (root / "demo" / "notes.txt").write_text("private")
    (root / "outside.py").write_text("print('outside')\n")
    (root / "demo" / "link.py").symlink_to(root / "outside.py")
    with service(root, {"demo": root / "demo", "other": root / "other"}) as running:
        running.serve("--no-worker")
        yield running


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path
