"""What makes a script without a torch DataLoader one whose queue may be full when the clock starts."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
from functools import lru_cache
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


STARTS_THE_COMPILERS_THREADS = """
import threading
from torch._inductor.async_compile import AsyncCompile

AsyncCompile.pool().submit(int).result()
others = [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]
from autotune.trial.probe.foreign_loaders import may_read_ahead
print(len(others) > 0, may_read_ahead())
threading.Thread(target=threading.Event().wait, daemon=True).start()
print(may_read_ahead())
"""


def test_the_threads_of_torchs_compiler_read_nothing_ahead() -> None:
    words = [sys.executable, "-c", STARTS_THE_COMPILERS_THREADS]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "True"]


def test_the_thread_that_reads_from_the_compilers_processes_reads_nothing_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Torch 2.4 gives the thread no name of its own; the pools are stand-ins."""
    reader = threading.Thread(name="Thread-1 (_read_thread)")

    @lru_cache(1)
    def process_pool() -> SimpleNamespace:
        return SimpleNamespace(read_thread=reader)

    compiler = SimpleNamespace(pool=lru_cache(1)(lambda: pytest.fail("a pool was made")), process_pool=process_pool)
    monkeypatch.setitem(sys.modules, "torch._inductor.async_compile", SimpleNamespace(AsyncCompile=compiler))
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread(), reader])
    assert may_read_ahead()
    process_pool()
    assert not may_read_ahead()
