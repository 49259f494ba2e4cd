"""Runs of the benchmark of parity, which leave nothing behind and wait for nothing that a run leaves."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests.benchmarks.parity import __main__ as parity

LEAVES_A_PROCESS = """
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
"""


def is_running(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_run_ends_with_its_script_although_a_process_of_the_script_holds_its_output(tmp_path: Path) -> None:
    printed = tmp_path / "output"
    assert parity.ends_in_time([sys.executable, "-c", LEAVES_A_PROCESS], tmp_path, dict(os.environ), printed)
    pid = int(printed.read_text())
    while is_running(pid):  # A signal takes a moment; a process that nobody ends would hang this test.
        time.sleep(0.01)


def test_a_run_beyond_the_limit_is_ended_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity, "LONGEST_RUN_S", 0.2)
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    assert not parity.ends_in_time(command, tmp_path, dict(os.environ), tmp_path / "output")
