"""What every Python process of a trial begins with: a watcher that acts as soon as a module is there."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

INJECT = Path(__file__).parents[3] / "autotune" / "trial" / "inject" / "sitecustomize.py"


@pytest.fixture
def watcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A watcher among the finders, and a module `watched_module` to be found."""
    for name in ("AUTOTUNE_TRIAL", "AUTOTUNE_JOB", "AUTOTUNE_REDIRECT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "watched_module.py").write_text("VALUE = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = importlib.util.spec_from_file_location("injected", INJECT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module._Watcher()
    monkeypatch.setattr(sys, "meta_path", [made, *sys.meta_path])
    monkeypatch.delitem(sys.modules, "watched_module", raising=False)
    yield made
    sys.modules.pop("watched_module", None)


def test_a_module_is_acted_on_once_when_it_is_there(watcher: Any) -> None:
    seen: list[ModuleType] = []
    watcher.watch("watched_module", seen.append)
    module = importlib.import_module("watched_module")
    assert seen == [module] and module.VALUE == 3
    importlib.reload(module)
    assert seen == [module]


@pytest.mark.parametrize("num_questions", [1, 3])
def test_who_only_asks_for_a_module_does_not_keep_it_from_being_acted_on(watcher: Any, num_questions: int) -> None:
    """Libraries ask whether torch is installed before they, or the script, import it."""
    seen: list[ModuleType] = []
    watcher.watch("watched_module", seen.append)
    for _ in range(num_questions):
        assert importlib.util.find_spec("watched_module") is not None
    assert seen == []
    module = importlib.import_module("watched_module")
    assert seen == [module]


def test_a_module_that_is_not_installed_is_not_found(watcher: Any) -> None:
    watcher.watch("watched_module_that_is_not_there", pytest.fail)
    assert importlib.util.find_spec("watched_module_that_is_not_there") is None
