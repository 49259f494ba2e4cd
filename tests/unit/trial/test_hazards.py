"""What is released before a process is forked from, and what is said of that which cannot be."""

from __future__ import annotations

import ctypes
import sys
import types

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
