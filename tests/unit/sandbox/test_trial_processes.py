"""Processes of a trial without a supervisor: found by their environment, and ended by pid and start time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.sandbox import process_tree
from autotune.sandbox.trial_processes import Process, Tree, end_strays, process_of

PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"AUTOTUNE_TRIAL": "/x/trial"},
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"1\n"
        yield child
        child.kill()


def test_a_tree_remembers_a_process_whose_parent_has_ended(parent: subprocess.Popen[bytes]) -> None:
    tree = Tree(parent.pid)
    (grandchild,) = tree.pids()
    parent.kill()
    parent.wait()
    tree._read_at = 0.0
    assert tree.pids() == [grandchild]
    tree.end()
    with pytest.raises(ProcessLookupError):
        while True:
            os.kill(grandchild, 0)


def test_a_tree_takes_no_process_from_below_a_later_process_with_the_pid_of_its_root(
    parent: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.sandbox.trial_processes.started_at", lambda pid: "1")
    tree = Tree(parent.pid)
    monkeypatch.undo()
    assert tree.pids() == []


@pytest.mark.parametrize("has_lists", [True, False])
def test_a_tree_without_a_root_is_empty(monkeypatch: pytest.MonkeyPatch, has_lists: bool) -> None:
    monkeypatch.setattr("autotune.sandbox.trial_processes.HAS_LISTS_OF_CHILDREN", has_lists)
    assert Tree(0).pids() == [], "a supervisor that has ended before it was looked at has the number 0"


def test_a_process_that_has_the_pid_of_another_is_not_signalled(parent: subprocess.Popen[bytes]) -> None:
    known = process_of(parent.pid)
    assert known is not None and known.is_running
    earlier = Process(parent.pid, known.started + "0")
    assert not earlier.is_running
    earlier.send(signal.SIGKILL)
    assert parent.poll() is None


def test_strays_are_ended_by_the_folder_in_their_environment(parent: subprocess.Popen[bytes]) -> None:
    stopped: list[int] = []
    end_strays(Path("/x/tri"), stopped.extend)
    assert stopped == [] and parent.poll() is None
    end_strays(Path("/x"), stopped.extend)
    assert parent.wait() == -signal.SIGKILL
    assert parent.pid in stopped and len(set(stopped)) == 2


def test_children_are_found_without_the_kernels_lists(
    parent: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = Tree(parent.pid).pids()
    monkeypatch.setattr("autotune.sandbox.trial_processes.HAS_LISTS_OF_CHILDREN", False)
    monkeypatch.setattr(process_tree, "HAS_LISTS_OF_CHILDREN", False)
    assert Tree(parent.pid).pids() == expected == process_tree.children_of(parent.pid)


def test_the_start_of_a_process_that_is_not_there_is_unknown() -> None:
    assert process_tree.started_at(1 << 30) is None and process_of(1 << 30) is None
