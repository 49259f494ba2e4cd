"""What needs a CUDA device; without one everything here is skipped, and says why."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from autotune.host import DeviceInfo
from autotune.model.result import TrialResult
from autotune.runner.devices import choose_device, cuda_devices
from tests.gpu.bench import FIGURES, THREE_SECONDS, Bench


@pytest.fixture(scope="session", autouse=True)
def device() -> DeviceInfo:
    """The first CUDA device that a process of ours would see."""
    if not cuda_devices():
        pytest.skip("NVML shows no CUDA device on this machine")
    if torch.version.cuda is None:
        pytest.skip(f"torch {torch.__version__} is built without CUDA")
    return choose_device("cuda")


@pytest.fixture(scope="session")
def bench(device: DeviceInfo) -> Iterator[Bench]:
    """One user for all tests, so that a script is probed once; in a place with a short name for sockets."""
    root = Path(tempfile.mkdtemp(prefix="gpu-")).resolve()
    made = Bench(root, device)
    yield made
    shutil.rmtree(made.workspace.folder, ignore_errors=True)
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def plain(bench: Bench) -> TrialResult:
    """One trial of the script that trains, under its own settings, with a window of three seconds."""
    job = bench.trial(bench.probed("trains.py"), window=THREE_SECONDS)
    return bench.run(job)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FIGURES:
        terminalreporter.section("figures of this machine")
        for what, figure in FIGURES:
            terminalreporter.write_line(f"{what:60} {figure}")
