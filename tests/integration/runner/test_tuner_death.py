"""The tuner is killed with SIGKILL, or closes its side: two seconds later nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.runner.ground import Ground, processes_of

REPOSITORY = Path(__file__).resolve().parents[3]
LIMIT_S = 60.0
"""Longest wait for the end of all processes; `python -m tests.benchmarks.endings` measures how long it takes."""


def start_tuner(ground: Ground, *arguments: str) -> subprocess.Popen[bytes]:
    return start_tuner_in(ground, "cold", *arguments)


def start_tuner_in(ground: Ground, start: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A tuner whose trials start cold, forked or prepared, under the ground's protection."""
    command = [sys.executable, "-m", "tests.integration.runner.tuner_child", str(ground.workspace.folder)]
    return subprocess.Popen(
        [*command, str(ground.user), ground.protection, start, *arguments], cwd=REPOSITORY, stdout=subprocess.DEVNULL
    )


def wait_until_nothing_is_left(ground: Ground) -> float:
    """Seconds until no process and no folder of a trial is left; fails after a minute."""
    began = time.monotonic()
    while processes_of(ground.workspace.folder) or ground.folders_left():
        assert time.monotonic() - began < LIMIT_S, (processes_of(ground.workspace.folder), ground.folders_left())
        time.sleep(0.02)
    return time.monotonic() - began


@pytest.mark.parametrize("mode", ["waits", "breeds"])
def test_a_killed_tuner_leaves_no_process_and_no_folder(ground: Ground, mode: str) -> None:
    tuner = start_tuner(ground, "strays.py", "waits", mode)
    ground.wait_for_line(b"ready")
    tuner.send_signal(signal.SIGKILL)
    tuner.wait()
    wait_until_nothing_is_left(ground)
    ground.check(f"tuner killed, {mode}", None)


def test_a_tuner_killed_while_the_trial_starts_leaves_nothing(ground: Ground) -> None:
    for delay_s in (0.0, 0.01, 0.03):
        tuner = start_tuner(ground, "ends.py", "hangs")
        while not ground.folders_left():
            time.sleep(0.001)
        time.sleep(delay_s)
        tuner.send_signal(signal.SIGKILL)
        tuner.wait()
        _wait_for_processes_to_end(ground)
        # Before its supervisor runs, nobody can know of a trial's folder; the next search removes it.
        ground.workspace.remove_leftovers()
        wait_until_nothing_is_left(ground)
    ground.check("tuner killed at the start", None)


def test_tuner_and_supervisor_killed_together_are_cleaned_up_by_the_next_search(ground: Ground) -> None:
    tuner = start_tuner(ground, "strays.py", "waits")
    ground.wait_for_line(b"ready")
    supervisor = next(
        pid
        for pid in processes_of(ground.workspace.folder)
        if b"supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    os.kill(supervisor, signal.SIGSTOP)
    tuner.send_signal(signal.SIGKILL)
    tuner.wait()
    os.kill(supervisor, signal.SIGKILL)
    ground.workspace.remove_leftovers()
    wait_until_nothing_is_left(ground)
    ground.check("tuner and supervisor killed", None)


def _wait_for_processes_to_end(ground: Ground) -> None:
    deadline = time.monotonic() + LIMIT_S
    while processes_of(ground.workspace.folder) and time.monotonic() < deadline:
        time.sleep(0.02)
