"""Callbacks that are registered for forks, while autotune forks and while the script does."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from autotune.sandbox import fork_callbacks


@pytest.fixture(autouse=True)
def _registered_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kept: list[dict[str, object]] = []
    monkeypatch.setattr(os, "register_at_fork", os.register_at_fork)
    monkeypatch.setattr(fork_callbacks, "_register", lambda **callbacks: kept.append(callbacks))
    fork_callbacks.install()
    yield
    fork_callbacks.unmute()


def registered(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    kept: list[dict[str, object]] = []
    monkeypatch.setattr(fork_callbacks, "_register", lambda **callbacks: kept.append(callbacks))
    return kept


def test_a_callback_is_called_except_while_mute(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, calls = registered(monkeypatch), []
    os.register_at_fork(before=lambda: calls.append("before"), after_in_child=lambda: calls.append("child"))
    (callbacks,) = kept

    def fork() -> None:
        for call in callbacks.values():
            assert callable(call)
            call()

    fork()
    fork_callbacks.mute()
    fork()
    assert calls == ["before", "child"]
    fork_callbacks.unmute()
    fork()
    assert calls == ["before", "child"] * 2


def test_a_mistaken_call_gets_the_systems_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = registered(monkeypatch)
    os.register_at_fork(before=3)  # type: ignore[arg-type]
    assert kept == [{"before": 3}]


def test_no_garbage_is_collected_while_mute() -> None:
    assert gc.isenabled()
    fork_callbacks.mute()
    fork_callbacks.mute()
    assert not gc.isenabled()
    fork_callbacks.unmute()
    assert gc.isenabled()
