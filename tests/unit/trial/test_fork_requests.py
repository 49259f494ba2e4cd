"""Requests for trials, as a fork server takes them."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator

import pytest

from autotune.protocol.supervision import SupervisorSpec
from autotune.trial.start import fork_requests


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGCHLD)
    yield
    signal.signal(signal.SIGCHLD, before)


def test_the_path_of_a_request_may_have_bytes_that_are_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SupervisorSpec(command=("python", "train.py"), cwd="/", layers=None, writable=None, log="")
    asked: list[str] = []
    monkeypatch.setattr(os, "fork", lambda: 0)
    monkeypatch.setattr(fork_requests.fork_callbacks, "mute", lambda: None)
    monkeypatch.setattr(fork_requests, "_become_supervisor", lambda path, *_: asked.append(path) or spec)
    tuner, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with tuner, ours:
        ours.send(b"/tmp/caf\xe9/supervisor.json")
        assert fork_requests.serve(tuner) is spec
    assert asked == [os.fsdecode(b"/tmp/caf\xe9/supervisor.json")]
