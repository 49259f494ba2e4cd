import ast
import sys
from pathlib import Path

import autotune.measure

FILES = sorted(Path(autotune.measure.__file__).parent.glob("*.py"))
NOT_PURE = {"time", "datetime", "os", "io", "pathlib", "subprocess", "threading", "socket", "logging"}


def imported_modules(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name} imports relatively"
            yield node.module


def test_the_room_imports_only_itself_and_the_pure_part_of_the_standard_library():
    modules = {module for file in FILES for module in imported_modules(file)}
    assert "math" in modules
    foreign = {
        module
        for module in modules
        if not module.startswith("autotune.measure.")
        and (module.split(".")[0] not in sys.stdlib_module_names or module.split(".")[0] in NOT_PURE)
    }
    assert foreign == set()
