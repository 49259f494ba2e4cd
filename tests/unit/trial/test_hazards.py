"""What is released before a process is forked from, and what is said of that which cannot be."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import types
from pathlib import Path

import pytest

from autotune.trial import hazards


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
    monkeypatch.setattr(hazards, "mapped_libraries", lambda word: [f"{word}.so.1"])
    monkeypatch.setattr(hazards, "descriptors", nvml.opened)
    monkeypatch.setattr(ctypes, "CDLL", lambda path: nvml)


def test_nvml_is_ended_as_often_as_it_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    nvml = Nvml(3)
    loaded(monkeypatch, nvml)
    hazards.release_nvml()
    hazards.release_nvml()
    assert (nvml.num_starts, nvml.num_ends) == (0, 3)


def test_nvml_that_cannot_be_ended_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    nvml = Nvml(3, fails=True)
    loaded(monkeypatch, nvml)
    hazards.release_nvml()
    assert nvml.num_ends == 1


def test_nvml_that_the_script_uses_itself_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    pynvml = types.ModuleType("pynvml")
    pynvml._nvmlLib_refcount = 1  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pynvml", pynvml)
    nvml = Nvml(2)
    loaded(monkeypatch, nvml)
    hazards.release_nvml()
    assert nvml.num_ends == 0


def test_threads_are_told_by_names_of_any_bytes_and_though_some_end_meanwhile(tmp_path: Path) -> None:
    tasks = [tmp_path / name for name in ("1", "2", "3", "4")]
    for task, comm in zip(tasks, (b"python\n", b"own-p\xf0\x9f\n", b"pool\n"), strict=False):
        task.mkdir()
        (task / "comm").write_bytes(comm)
    said = hazards._native_names(tasks)
    assert said.startswith("3 threads (own-p") and said.endswith(", pool)")


def test_a_mapped_file_may_have_a_name_of_any_bytes(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/libown-\xff.so"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    os.truncate(descriptor, mmap.PAGESIZE)
    with mmap.mmap(descriptor, mmap.PAGESIZE):
        assert hazards.mapped_libraries("libown") == [os.fsdecode(path)]
    os.close(descriptor)
