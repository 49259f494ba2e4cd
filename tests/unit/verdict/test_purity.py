"""The room of verdicts has no clock, no file and no process: the same reports give the same verdict everywhere."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import autotune.verdict

FILES = sorted(Path(autotune.verdict.__file__).parent.glob("*.py"))
NOT_PURE = {"time", "datetime", "os", "io", "pathlib", "subprocess", "threading", "socket", "logging", "random"}
PURE_ROOMS = {"errors", "measure", "model", "protocol", "settings", "units", "verdict"}
NOT_PURE_CALLS = {"open", "print", "input", "exec", "eval"}


def imported_modules(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name} imports relatively"
            yield str(node.module)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_verdict_imports_values_and_the_pure_part_of_the_standard_library(file: Path) -> None:
    for module in imported_modules(file):
        first, *rest = module.split(".")
        if first == "autotune":
            assert rest[0] in PURE_ROOMS, module
        else:
            assert first in sys.stdlib_module_names and first not in NOT_PURE, module


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_verdict_neither_reads_nor_writes(file: Path) -> None:
    calls = [node.func for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
    assert {call.id for call in calls if isinstance(call, ast.Name)}.isdisjoint(NOT_PURE_CALLS)
