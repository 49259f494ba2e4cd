"""What makes a script without a torch DataLoader one whose queue may be full when the clock starts."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest

from autotune.trial.probe.foreign_loaders import HELPERS, LIBRARIES, may_read_ahead


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing ran beside the script."""
    for name in LIBRARIES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread()])
    monkeypatch.setattr(multiprocessing, "active_children", list)


def test_a_script_that_makes_its_batches_in_its_own_loop_reads_nothing_ahead() -> None:
    assert not may_read_ahead()


@pytest.mark.parametrize("name", ["nvidia.dali", "tensorflow", "torchdata"])
def test_a_library_with_queues_of_its_own_is_taken_to_fill_them(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert may_read_ahead()


def test_a_process_of_the_scripts_may_fill_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "active_children", lambda: [SimpleNamespace()])
    assert may_read_ahead()


@pytest.mark.parametrize(("name", "may"), [("Thread-1 (read)", True), *((f"{name}-1", False) for name in HELPERS)])
def test_a_thread_may_unless_it_is_a_tools(monkeypatch: pytest.MonkeyPatch, name: str, may: bool) -> None:
    threads = [threading.main_thread(), threading.Thread(name=name)]
    monkeypatch.setattr(threading, "enumerate", lambda: threads)
    assert may_read_ahead() is may
