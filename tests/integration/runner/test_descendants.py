"""The children of a process, with and without the kernel's own lists."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.sandbox import process_tree
from autotune.sandbox.trial_processes import Tree

PROGRAM = "import os, time; os.fork(); os.fork(); print('x', flush=True); time.sleep(60)"


@pytest.fixture
def root() -> Iterator[subprocess.Popen[bytes]]:
    """A process with three below it: two children, and a grandchild."""
    process = subprocess.Popen([sys.executable, "-S", "-c", PROGRAM], stdout=subprocess.PIPE)
    assert process.stdout is not None
    for _ in range(4):
        process.stdout.readline()
    yield process
    process_tree.signal_tree(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    process.stdout.close()


def below(pid: int) -> set[int]:
    return set(process_tree.signal_tree(pid, signal.SIGCONT))


@pytest.mark.parametrize("missing", ["nothing", "HAS_LISTS_OF_CHILDREN", "HAS_PROC"])
def test_all_below_a_process_are_found(
    root: subprocess.Popen[bytes], missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = below(root.pid)
    assert len(expected) == 3
    if missing != "nothing":
        monkeypatch.setattr(process_tree, "HAS_LISTS_OF_CHILDREN", False)
        monkeypatch.setattr(process_tree, missing, False)
    assert below(root.pid) == expected
    assert len(process_tree.children_of(root.pid)) == 2


def test_the_tuner_finds_the_same_ones_and_ends_them(root: subprocess.Popen[bytes]) -> None:
    expected = below(root.pid)
    tree = Tree(root.pid)
    assert set(tree.pids()) == expected
    tree.end()
    deadline = time.monotonic() + 2
    while any(map(is_living, expected)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(is_living, expected))
    assert root.poll() is None


def test_what_tidies_up_is_known_by_what_it_runs() -> None:
    read_end, write_end = os.pipe()
    tracker = f"from multiprocessing.resource_tracker import main;main({read_end})"
    for program, expected in ((f"import os; os.read({read_end}, 1)", False), (tracker, True)):
        process = subprocess.Popen([sys.executable, "-S", "-c", program], pass_fds=(read_end,))
        while not Path(f"/proc/{process.pid}/cmdline").read_bytes():
            time.sleep(0.001)  # A process that has just been started has no words for a moment.
        assert process_tree.tidies_up(process.pid) is expected
        process.kill()
        process.wait()
        assert not process_tree.tidies_up(process.pid)
    os.close(read_end)
    os.close(write_end)


FORGETS = """
import os, subprocess, time
from pathlib import Path
from autotune.trial.start.fork_hazards import reap_forgotten

def ended(popen):
    while Path(f"/proc/{popen.pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z":
        time.sleep(0.001)

children = Path(f"/proc/self/task/{os.getpid()}/children")
kept = subprocess.Popen(["false"])
ended(kept)
reader, writer = os.pipe()
forgotten = subprocess.Popen(["sh", "-c", f"read x <&{reader}"], pass_fds=[reader])
pid, process = forgotten.pid, type("Process", (), {"pid": forgotten.pid})
del forgotten
os.write(writer, b"end\\n")
ended(process)
before = len(children.read_text().split())
reap_forgotten()
print(before, children.read_text().split() == [str(kept.pid)], kept.wait())
"""


@pytest.mark.skipif(not process_tree.HAS_LISTS_OF_CHILDREN, reason="the kernel keeps no lists of children")
def test_an_ended_process_that_the_script_has_forgotten_is_buried_and_another_is_not() -> None:
    output = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORGETS], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert output.split() == ["2", "True", "1"]


def is_living(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")
