"""What is signalled, and what goes on, when a tree is killed."""

from __future__ import annotations

import os
import signal
import time

import pytest

from autotune.sandbox import process_tree
from autotune.sandbox.process_tree import Descendants

SCRIPT, TIDIER = 7, 8


class Tree:
    """Two processes, of which one tidies up after the other, and a clock that is looked at once a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_stuck: bool) -> None:
        self.left, self._is_stuck, self._now_s = {SCRIPT, TIDIER}, is_stuck, 0.0
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
        self._now_s += 1.0
        return self._now_s


@pytest.mark.parametrize("is_stuck", [False, True])
def test_what_tidies_up_goes_on_also_when_a_killed_process_does_not_end(
    monkeypatch: pytest.MonkeyPatch, is_stuck: bool
) -> None:
    tree = Tree(monkeypatch, is_stuck=is_stuck)
    Descendants().end(grace_s=0.0, meanwhile=lambda: None)
    assert tree.left == ({SCRIPT, TIDIER} if is_stuck else {TIDIER})
    assert TIDIER not in tree.stopped
