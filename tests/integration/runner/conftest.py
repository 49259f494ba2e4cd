"""The ground on which runs are started, with layers and redirected, and the table of faults."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.sandbox.layer_permission import is_permitted
from autotune.sandbox.tree_removal import remove_tree
from tests.integration.runner.ground import TABLE, Ground, protection_of


@pytest.fixture(scope="session")
def are_layers_permitted(tmp_path_factory: pytest.TempPathFactory) -> bool:
    return is_permitted(tmp_path_factory.mktemp("permitted"))


@pytest.fixture(params=["layers", "landlock", "redirected"])
def ground(
    request: pytest.FixtureRequest, are_layers_permitted: bool, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ground]:
    """A user's project and home under one of the three protections, in a place with a short name for sockets.

    `either` takes the one that this system permits: for what does not depend on it.
    """
    protection = protection_of(request.param, are_layers_permitted=are_layers_permitted)
    monkeypatch.setenv("HOME", os.environ.get("HOME", "/"))
    root = Path(tempfile.mkdtemp(prefix="ground-")).resolve()
    made = Ground(root, protection)
    yield made
    remove_tree(root)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not TABLE:
        return
    terminalreporter.section("faults of a trial")
    heads = ("fault", "outcome", "processes left", "files changed", "finished trials lost")
    widths = [max(len(str(row[i])) for row in [heads, *TABLE]) for i in range(len(heads))]
    for row in [heads, *TABLE]:
        cells = zip(row, widths, strict=True)
        terminalreporter.write_line("  ".join(str(cell).ljust(width) for cell, width in cells).rstrip())
