"""What is signalled, and what goes on, when a tree is killed."""

from __future__ import annotations

import os
import signal
import time

import pytest

from autotune.runner.handle import STOP_LIMIT_S
from autotune.sandbox import process_tree
from autotune.sandbox.process_tree import Descendants

SCRIPT, TIDIER = 7, 8


class Tree:
    """Two processes, of which one tidies up after the other, and a clock that goes on at each look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_stuck: bool, look_s: float = 1.0) -> None:
        self._look_s = look_s
        self.left, self._is_stuck, self.now_s = {SCRIPT, TIDIER}, is_stuck, 0.0
        self.stopped: set[int] = set()
        monkeypatch.setattr(process_tree, "signal_tree", self._signal_all)
        monkeypatch.setattr(process_tree, "send", self._send)
        monkeypatch.setattr(process_tree, "tidies_up", lambda pid: pid == TIDIER)
        monkeypatch.setattr(Descendants, "reap", lambda _: bool(self.left))
        monkeypatch.setattr(time, "monotonic", self._monotonic)
        monkeypatch.setattr(time, "sleep", lambda _: None)

    def _signal_all(self, root: int, signum: int) -> list[int]:
        assert root == os.getpid()
        for pid in self.left:
            self._send(pid, signum)
        return sorted(self.left)

    def _send(self, pid: int, signum: int) -> None:
        if signum == signal.SIGSTOP:
            self.stopped.add(pid)
        elif signum == signal.SIGCONT:
            self.stopped.discard(pid)
        elif signum == signal.SIGKILL and not self._is_stuck:
            self.left.discard(pid)
            self.stopped.discard(pid)

    def _monotonic(self) -> float:
        self.now_s += self._look_s
        return self.now_s


@pytest.mark.parametrize("is_stuck", [False, True])
def test_what_tidies_up_goes_on_also_when_a_killed_process_does_not_end(
    monkeypatch: pytest.MonkeyPatch, is_stuck: bool
) -> None:
    tree = Tree(monkeypatch, is_stuck=is_stuck)
    Descendants().end(grace_s=0.0, meanwhile=lambda: None)
    assert tree.left == ({SCRIPT, TIDIER} if is_stuck else {TIDIER})
    assert TIDIER not in tree.stopped


def test_a_process_that_does_not_end_is_waited_for_once_by_all_passes_of_a_supervisor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree, descendants = Tree(monkeypatch, is_stuck=True, look_s=0.1), Descendants()
    tree.left.discard(TIDIER)
    descendants.end(grace_s=1.0, meanwhile=lambda: None)
    descendants.end(grace_s=0.0, meanwhile=lambda: None)
    descendants.let_tidy()
    assert tree.left == {SCRIPT} and tree.now_s < STOP_LIMIT_S, (
        "the tuner would kill the supervisor, and lose the report"
    )
