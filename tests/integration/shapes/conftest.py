"""The ground on which the shapes run, and the table of what came of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.sandbox.tree_removal import remove_tree
from tests.integration.shapes.ground import Ground
from tests.integration.shapes.shape import FEATURES
from tests.integration.shapes.test_matrix import TABLE


@pytest.fixture(scope="session")
def ground() -> Iterator[Ground]:
    """A user's folder in a place with a short name for sockets."""
    root = Path(tempfile.mkdtemp(prefix="shapes-")).resolve()
    made = Ground(root)
    yield made
    made.close()
    remove_tree(root)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not TABLE:
        return
    terminalreporter.section("shapes of scripts: features that passed, and refusals by name")
    widths = [max(len(name) for name in ("shape", *TABLE)), *(max(len(feature), 7) for feature in FEATURES)]
    rows = [["shape", *FEATURES]]
    rows += [[name, *(cells[feature].partition(":")[0] for feature in FEATURES)] for name, cells in TABLE.items()]
    for row in rows:
        cells = zip(row, widths, strict=True)
        terminalreporter.write_line("  ".join(cell.ljust(width) for cell, width in cells).rstrip())
    for name, cells in TABLE.items():
        reasons: dict[str, list[str]] = {}
        for feature, cell in cells.items():
            if cell.startswith("refused: "):
                reasons.setdefault(cell.removeprefix("refused: "), []).append(feature)
        for reason, features in reasons.items():
            terminalreporter.write_line(f"{name}: {', '.join(features)}: {reason}")
