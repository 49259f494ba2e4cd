"""What is released before a process is forked from, and what is said of that which cannot be."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
import types
from pathlib import Path

import pytest
import torch

from autotune.trial.start import fork_hazards
from autotune.trial.torch import torch_names


class Nvml:
    """A library that counts how often it was started, and has files of the driver open until it was ended as often."""

    def __init__(self, num_starts: int, *, fails: bool = False) -> None:
        self.num_starts, self._fails = num_starts, fails
        self.num_ends = 0

    def nvmlShutdown(self) -> int:  # noqa: N802  its name
        self.num_ends += 1
        self.num_starts = max(0, self.num_starts - 1)
        return 1 if self._fails else 0

    def opened(self) -> list[tuple[int, str]]:
        return [(0, "/dev/null"), *([(7, "/dev/nvidiactl")] if self.num_starts else [])]


def loaded(monkeypatch: pytest.MonkeyPatch, nvml: Nvml) -> None:
    """This process has the library."""
    monkeypatch.setattr(fork_hazards, "mapped_libraries", lambda word: [f"{word}.so.1"])
    monkeypatch.setattr(fork_hazards, "descriptors", nvml.opened)
    monkeypatch.setattr(ctypes, "CDLL", lambda path: nvml)


def test_nvml_is_ended_as_often_as_it_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    nvml = Nvml(3)
    loaded(monkeypatch, nvml)
    fork_hazards.release_nvml()
    fork_hazards.release_nvml()
    assert (nvml.num_starts, nvml.num_ends) == (0, 3)


def test_nvml_that_cannot_be_ended_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    nvml = Nvml(3, fails=True)
    loaded(monkeypatch, nvml)
    fork_hazards.release_nvml()
    assert nvml.num_ends == 1


def test_nvml_that_the_script_uses_itself_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    pynvml = types.ModuleType("pynvml")
    pynvml._nvmlLib_refcount = 1  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pynvml", pynvml)
    nvml = Nvml(2)
    loaded(monkeypatch, nvml)
    fork_hazards.release_nvml()
    assert nvml.num_ends == 0


def test_threads_are_told_by_names_of_any_bytes_and_though_some_end_meanwhile(tmp_path: Path) -> None:
    tasks = [tmp_path / name for name in ("1", "2", "3", "4")]
    for task, comm in zip(tasks, (b"python\n", b"own-p\xf0\x9f\n", b"pool\n"), strict=False):
        task.mkdir()
        (task / "comm").write_bytes(comm)
    said = fork_hazards._native_names(tasks)
    assert said.startswith("3 threads (own-p") and said.endswith(", pool)")


def test_a_mapped_file_may_have_a_name_of_any_bytes(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/libown-\xff.so"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    os.truncate(descriptor, mmap.PAGESIZE)
    with mmap.mmap(descriptor, mmap.PAGESIZE):
        assert fork_hazards.mapped_libraries("libown") == [os.fsdecode(path)]
    os.close(descriptor)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of which forks are sound, whatever else pytest has started."""
    monkeypatch.setattr(fork_hazards, "_tasks", lambda: [Path("/proc/self/task/0")])
    monkeypatch.setattr(fork_hazards, "_said_of", lambda task, what: "")
    monkeypatch.setattr(fork_hazards, "descriptors", lambda: [(0, "/dev/null")])
    monkeypatch.setattr(fork_hazards, "_mappings", lambda: ["7f00-7f01 r--p 0 00:01 1 /lib/libc.so"])
    monkeypatch.setattr(fork_hazards, "fork_and_wait", lambda work: 0)
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread()])


def found(**changes: int) -> str:
    """What is said of this process."""
    return fork_hazards.why_not("an import", is_known=lambda number, _: number == 0, **changes)


@pytest.mark.usefixtures("alone")
def test_where_nothing_is_alive_nothing_is_said() -> None:
    assert found() == ""


@pytest.mark.usefixtures("alone")
def test_what_can_be_ended_is_ended_before_anything_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    for name in ("release_openmp", "release_nvml", "reap_forgotten"):
        monkeypatch.setattr(fork_hazards, name, lambda name=name: done.append(name))
    monkeypatch.setattr(fork_hazards, "fork_and_wait", lambda work: done.append("a fork") or 0)
    monkeypatch.setattr(fork_hazards, "_tasks", lambda: done.append("a look") or [])
    assert found() == ""
    assert done == ["release_openmp", "release_nvml", "reap_forgotten", "a fork", "a look", "a fork"]


@pytest.mark.usefixtures("alone")
def test_a_thread_of_pythons_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    other = threading.Thread(name="prefetch")
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread(), other])
    assert found() == "an import has started the thread prefetch"


@pytest.mark.usefixtures("alone")
def test_threads_outside_of_python_are_told_beyond_those_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_hazards, "_tasks", lambda: [Path(f"/proc/self/task/{n}") for n in range(3)])
    said = "an import has started 2 threads (PTThreadPool) outside of Python"
    monkeypatch.setattr(fork_hazards, "_said_of", lambda task, what: "PTThreadPool" if what == "comm" else "")
    assert found() == found(num_known_tasks=2) == said
    assert found(num_known_tasks=3) == ""


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("comm", "mapped", "reason"),
    [
        ("jemalloc_bg_thd", "/packages/pyarrow/libarrow.so.2600", ""),
        ("jemalloc_bg_thd", "/packages/own/libown.so", "2 threads (jemalloc_bg_thd) outside of Python"),
        ("own-pool", "/packages/pyarrow/libarrow.so.2600", "2 threads (own-pool) outside of Python"),
    ],
)
def test_threads_of_a_library_that_prepares_for_forks_forbid_none(
    monkeypatch: pytest.MonkeyPatch, comm: str, mapped: str, reason: str
) -> None:
    monkeypatch.setattr(fork_hazards, "_tasks", lambda: [Path(f"/proc/self/task/{n}") for n in range(3)])
    monkeypatch.setattr(fork_hazards, "_said_of", lambda task, what: comm if what == "comm" else "")
    monkeypatch.setattr(fork_hazards, "_mappings", lambda: [f"7f00-7f01 r-xp 0 00:01 1 {mapped}"])
    assert found() == (f"an import has started {reason}" if reason else "")


@pytest.mark.usefixtures("alone")
def test_a_thread_that_forbids_a_fork_is_told_without_those_that_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["python", "jemalloc_bg_thd", "own-pool"]
    monkeypatch.setattr(fork_hazards, "_tasks", lambda: [Path(f"/proc/self/task/{n}") for n in range(3)])
    monkeypatch.setattr(fork_hazards, "_said_of", lambda task, what: names[int(task.name)] if what == "comm" else "")
    monkeypatch.setattr(fork_hazards, "_mappings", lambda: ["7f00-7f01 r-xp 0 00:01 1 /packages/libarrow.so.2600"])
    assert found() == "an import has started 1 thread (own-pool) outside of Python"


@pytest.mark.usefixtures("alone")
def test_a_process_of_any_thread_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_hazards, "_said_of", lambda task, what: "4711" if what == "children" else "")
    assert found() == "an import has started a process"


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("target", ["socket:[7]", "anon_inode:[io_uring]", "anon_inode:[eventfd]", "/dev/nvidiactl"])
def test_what_is_open_and_nobody_knows_is_told(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    monkeypatch.setattr(fork_hazards, "descriptors", lambda: [(0, "/dev/null"), (7, target)])
    assert found() == f"an import keeps {target} open"


@pytest.mark.usefixtures("alone")
def test_memory_that_others_see_is_told_beyond_known_semaphores(monkeypatch: pytest.MonkeyPatch) -> None:
    semaphore, array = "7f00-7f01 rw-s 0 00:19 5 /dev/shm/sem.x", "7f02-7f03 rw-s 0 00:19 6 /data/array.npy"
    monkeypatch.setattr(fork_hazards, "_mappings", lambda: [semaphore])
    assert "/dev/shm/sem.x" in found() and found(num_known_semaphores=1) == ""
    monkeypatch.setattr(fork_hazards, "_mappings", lambda: [semaphore, array])
    assert found(num_known_semaphores=1) == "an import shares the memory /data/array.npy"


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (None, "hangs as soon as it computes"),
        (fork_hazards.CUDA_LOST, "an import has asked the CUDA driver for its devices"),
        (fork_hazards.CANNOT_TRAIN, "cannot train"),
        (-11, "ends with status -11"),
    ],
)
def test_a_canary_that_dies_says_of_what(monkeypatch: pytest.MonkeyPatch, status: int | None, reason: str) -> None:
    monkeypatch.setattr(fork_hazards, "fork_and_wait", lambda work: status if work is fork_hazards._canary else 0)
    assert reason in found()


def test_a_canary_trains_also_where_gradients_are_switched_off() -> None:
    with torch.no_grad():
        assert fork_hazards._canary() == 0


def test_a_canary_says_that_cuda_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_names, "is_cuda_lost", lambda: True)
    assert fork_hazards._canary() == fork_hazards.CUDA_LOST
