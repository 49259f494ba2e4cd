"""Descriptors are waited for, whatever their numbers."""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotune.sandbox.descriptors import readable
from autotune.sandbox.process_tree import Descendants
from autotune.sandbox.pseudo_terminal import BoundedLog, Terminal
from autotune.sandbox.supervisor import watch

LARGE = 1500
"""A number that `select.select` refuses."""
PID = 7
Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Callable[[], Pipe]]:
    """Makes pipes with large numbers."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] <= LARGE + 20:
        pytest.skip("this system permits too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], LARGE + 20), before[1]))
    opened: list[int] = []

    def make() -> Pipe:
        low = os.pipe()
        high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, LARGE) for end in low)
        for end in low:
            os.close(end)
        opened.extend(high)
        return high[0], high[1]

    yield make
    for end in opened:
        os.close(end)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_descriptor_is_readable_with_data_and_at_its_end(pipe: Callable[[], Pipe]) -> None:
    (first, to_first), (second, to_second) = pipe(), os.pipe()
    assert readable(first, second, limit_s=0) == []
    os.write(to_first, b"x")
    assert readable(first, second, limit_s=0) == [first]
    os.close(to_second)
    assert sorted(readable(first, second)) == sorted([first, second])
    os.close(second)


class Tree(Descendants):
    """A tree whose first process has ended once the signal of the end was read."""

    def reap(self) -> bool:
        if self.num_reaped:
            self.statuses[PID] = 0
        self.num_reaped += 1
        return False

    num_reaped = 0


@pytest.fixture
def orders() -> Iterator[None]:
    """A tuner that lives and orders nothing."""
    before, (theirs, ours) = os.dup(0), os.pipe()
    os.dup2(theirs, 0)
    yield
    os.dup2(before, 0)
    for end in (before, theirs, ours):
        os.close(end)


@pytest.mark.usefixtures("orders")
def test_a_supervisor_forked_from_a_script_with_many_open_files_watches_a_trial(
    pipe: Callable[[], Pipe], tmp_path: Path
) -> None:
    (master, script), (child_ended, to_child_ended) = pipe(), pipe()
    log = BoundedLog(os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT))
    terminal = Terminal(master, log)
    os.write(script, b"said")
    os.write(to_child_ended, b"x")
    watch(PID, terminal, Tree(), child_ended)
    os.write(script, b" more")
    terminal.drain()
    log.close()
    assert (tmp_path / "log").read_text() == "said more"
