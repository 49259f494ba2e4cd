"""What a script did before, or between, its imports: variables that it changed, and a heap that it froze."""

from __future__ import annotations

import gc
import importlib.machinery
import sys
import sysconfig
import types
from collections.abc import Iterator

import pytest

from autotune.trial.probe import imports
from autotune.trial.probe.imports import early_environment, imported_after_freeze, imported_modules


@pytest.fixture
def collector() -> Iterator[None]:
    yield
    gc.unfreeze()


def import_later(monkeypatch: pytest.MonkeyPatch, name: str, folder: str) -> None:
    """A module of that name is there from now on."""
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, origin=f"{folder}/{name}.py")
    monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("collector")
def test_a_module_that_is_imported_after_the_heap_was_frozen_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = sysconfig.get_path("purelib")
    import_later(monkeypatch, "imported_before", packages)
    assert imported_after_freeze() == ""
    gc.freeze()
    assert imported_after_freeze() == ""
    import_later(monkeypatch, "of_the_script", "/project")
    assert imported_after_freeze() == ""
    import_later(monkeypatch, "imported_later", packages)
    import_later(monkeypatch, "a_last_one", packages)
    assert imported_after_freeze() == "imported_later"
    gc.unfreeze()
    assert imported_after_freeze() == ""


def test_a_variable_that_an_import_may_have_read_is_told_and_one_that_is_read_when_asked_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OMP_OF_A_TEST", "PYTORCH_NVML_BASED_CUDA_CHECK"):
        monkeypatch.setenv(name, "changed since the process started")
    assert "OMP_OF_A_TEST" in early_environment()
    assert "PYTORCH_NVML_BASED_CUDA_CHECK" not in early_environment()


def test_a_variable_of_an_openmp_that_is_not_loaded_is_of_no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """The import of scikit-learn sets it, and every trial of such a script was a cold start."""
    monkeypatch.setenv("KMP_INIT_AT_FORK", "changed since the process started")
    monkeypatch.setattr(imports, "mapped_libraries", lambda word: [])
    assert "KMP_INIT_AT_FORK" not in early_environment()
    monkeypatch.setattr(imports, "mapped_libraries", lambda word: ["/lib/libiomp5.so"] if word == "libiomp" else [])
    assert "KMP_INIT_AT_FORK" in early_environment()


def test_code_that_a_library_generates_is_no_imported_module(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("__autograph_generated_file0m0yn7w_", "their_data.loader"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    names = imported_modules()
    assert "their_data" in names and "sys" not in names
    assert not [name for name in names if "autograph" in name]
