"""Who may import whom, walked over the source of every module."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import autotune

PACKAGE = Path(autotune.__file__).parent
BASE = {
    "errors",
    "units",
    "settings",
    "spec",
    "user_state",
    "host",
    "process_memory",
    "model",
    "measure",
    "protocol",
}
MAY_IMPORT = {
    "errors": set(),
    "units": {"errors"},
    "measure": set(),
    "settings": {"errors"},
    "host": set(),
    "process_memory": {"host"},
    "spec": set(),
    "user_state": set(),
    "protocol": {"errors", "measure", "model", "settings"},
    "model": {"errors", "measure", "protocol", "settings"},
    "space": BASE,
    "study_file": BASE | {"space"},
    "verdict": BASE,
    "sandbox": {"protocol"},
    "trial": BASE | {"sandbox", "verdict"},
    "runner": BASE | {"sandbox", "verdict"},
    "search": BASE | {"space"},
    "store": BASE,
    "emit": BASE,
    "report": BASE,
    "api": BASE | {"emit"},
    "study": BASE | {"space", "study_file", "sandbox", "verdict", "runner", "search", "store", "emit", "__init__"},
    "diagnose": BASE | {"space", "sandbox", "verdict", "runner", "study"},
    "lab": BASE | {"space", "study_file", "sandbox", "runner", "search", "store", "study", "__init__"},
    "cli": BASE | {"space", "study_file", "study", "diagnose", "lab", "report", "emit", "store", "__init__"},
    "integrations": BASE | {"api", "emit"},
    "__init__": {"api", "integrations", "model", "study"},
    "__main__": {"cli"},
}
"""Rooms that each room may import from, beside itself."""
SHARED = {"start.active_session", "torch.batch_structure", "apply.model_seams", "torch.torch_names"}
"""Files of the room `trial` that the room `api` may import from."""
THIRD_PARTY = {
    "torch": {"settings", "trial", "api", "integrations"},
    "transformers": {"integrations"},
    "lightning": {"integrations"},
    "psutil": {"runner"},
    "pynvml": {"runner"},
    "optuna": {"search", "store"},
    "sqlalchemy": {"store"},
    "numpy": {"search"},
    "yaml": {"emit"},
    "tomli_w": {"emit"},
    "plotly": {"report"},
    "rich": {"report", "cli"},
    "typer": {"cli"},
}
"""Rooms that own a third party."""


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def room_of(path):
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


def imported(path):
    """(dotted name, whether it is only for type checkers) of every import."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_room_imports_only_what_lies_below(path):
    room = room_of(path)
    for name in imported(path):
        parts = name.split(".")
        if parts[0] != "autotune" or len(parts) < 2:
            continue
        other = parts[1] if (PACKAGE / parts[1]).exists() or (PACKAGE / f"{parts[1]}.py").exists() else "__init__"
        is_shared_file = other == "trial" and ".".join(parts[2:4]) in SHARED and room == "api"
        assert other == room or other in MAY_IMPORT[room] or is_shared_file, f"{room} imports {name}"


STANDARD_LIBRARY_ONLY = {"protocol", "sandbox", "verdict"}
"""Rooms without any third party: supervisors and the user's own processes load them."""


@pytest.mark.parametrize(
    "path", [path for path in modules() if room_of(path) in STANDARD_LIBRARY_ONLY], ids=lambda p: p.name
)
def test_some_rooms_need_the_standard_library_alone(path):
    foreign = {name.split(".")[0] for name in imported(path)} - sys.stdlib_module_names - {"autotune"}
    assert foreign == set()


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_third_party_lives_in_its_own_rooms(path):
    room = room_of(path)
    for name in imported(path):
        owners = THIRD_PARTY.get(name.split(".")[0])
        assert owners is None or room in owners, f"{room} imports {name}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "settings").glob("*.py")), ids=lambda p: p.name)
def test_a_setting_loads_torch_only_when_it_is_applied_or_read(path):
    outside = [node for node in ast.parse(path.read_text()).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert not any("torch" in ast.dump(node) for node in outside)
