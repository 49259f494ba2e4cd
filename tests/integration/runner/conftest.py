"""The ground on which runs are started, with layers and redirected, and the table of faults."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.runner import layers
from tests.integration.runner.ground import TABLE, Ground


@pytest.fixture(scope="session")
def are_layers_permitted(tmp_path_factory: pytest.TempPathFactory) -> bool:
    return layers.is_permitted(tmp_path_factory.mktemp("permitted"))


@pytest.fixture(params=["layers", "redirected"])
def ground(
    request: pytest.FixtureRequest, tmp_path: Path, are_layers_permitted: bool, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ground]:
    """A user's project and home under one of the two protections."""
    if request.param == "layers" and not are_layers_permitted:
        pytest.skip("this system permits no overlay mounts")
    monkeypatch.setenv("HOME", os.environ.get("HOME", "/"))
    made = Ground(tmp_path, has_layers=request.param == "layers")
    yield made
    made.workspace.remove()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not TABLE:
        return
    terminalreporter.section("faults of a trial")
    heads = ("fault", "outcome", "processes left", "files changed", "finished trials lost")
    widths = [max(len(str(row[i])) for row in [heads, *TABLE]) for i in range(len(heads))]
    for row in [heads, *TABLE]:
        cells = zip(row, widths, strict=True)
        terminalreporter.write_line("  ".join(str(cell).ljust(width) for cell, width in cells).rstrip())
