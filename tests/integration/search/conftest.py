from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.sandbox.tree_removal import remove_tree

from .pretend import TABLE, Project


@pytest.fixture
def project() -> Iterator[Project]:
    """A user's folder with a script that pretends, in a place with a short name for sockets."""
    root = Path(tempfile.mkdtemp(prefix="pr-")).resolve()
    yield Project(root)
    remove_tree(root)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not TABLE:
        return
    terminalreporter.section("faults of the tuner")
    heads = ("fault", "outcome", "processes left", "files changed", "finished trials lost")
    widths = [max(len(str(row[i])) for row in [heads, *TABLE]) for i in range(len(heads))]
    for row in [heads, *TABLE]:
        cells = zip(row, widths, strict=True)
        terminalreporter.write_line("  ".join(str(cell).ljust(width) for cell, width in cells).rstrip())
