"""Who may import whom, walked over the source of every module."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import autotune
from autotune.protocol import entry_points, environment
from autotune.protocol.entry_points import Program

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
    "storage": BASE,
    "trial": BASE | {"sandbox", "verdict", "storage"},
    "runner": BASE | {"sandbox", "verdict"},
    "search": BASE | {"space"},
    "store": BASE,
    "emit": BASE,
    "report": BASE,
    "api": BASE | {"emit"},
    "study": BASE | {"space", "study_file", "sandbox", "verdict", "runner", "search", "store", "emit", "__init__"},
    "diagnose": BASE | {"space", "sandbox", "verdict", "runner", "study"},
    "lab": BASE | {"space", "study_file", "sandbox", "runner", "search", "store", "study", "__init__"},
    "client": {"errors", "user_state"},
    "service": BASE
    | {"client", "space", "study_file", "study", "sandbox", "runner", "report", "emit", "store", "__init__"},
    "cli": BASE
    | {"space", "study_file", "study", "diagnose", "lab", "report", "emit", "store", "storage"}
    | {"client", "service", "__init__"},
    "integrations": BASE | {"api", "emit"},
    "__init__": {"api", "integrations", "model", "storage", "study"},
    "__main__": {"cli"},
}
"""Rooms that each room may import from, beside itself."""
SHARED = {
    *("start.active_session", "keras.attach", "torch.batch_structure", "torch.side_stream"),
    *("apply.model_seams", "torch.torch_names"),
}
"""Files of the room `trial` that the room `api` may import from."""
MAY_START = {
    "runner": {"sandbox", "trial"},
    "sandbox": {"sandbox"},
    "study": {"trial"},
    "storage": {"storage"},
}
"""Rooms whose programs each room may start. A program runs in a process of its own, so it may lie above the caller."""
LIGHT = {"errors", "protocol"}
"""What the files of `protocol` import, but for the job's, which is made of plain data from other rooms."""
THIRD_PARTY = {
    "torch": {"settings", "trial", "api", "integrations", "storage"},
    "keras": {"settings", "trial"},
    "tensorflow": {"settings"},
    "transformers": {"integrations"},
    "lightning": {"integrations"},
    "psutil": {"runner"},
    "pynvml": {"runner"},
    "optuna": {"search", "store"},
    "sqlalchemy": {"store"},
    "numpy": {"search", "storage", "trial"},
    "PIL": {"storage"},
    "fastapi": {"service"},
    "starlette": {"service"},
    "uvicorn": {"service"},
    "sse_starlette": {"service"},
    "jinja2": {"service"},
    "markupsafe": {"service"},
    "ray": {"service"},
    "submitit": {"service"},
    "optuna_dashboard": {"service"},
    "pydantic": {"study_file", "service"},
    "yaml": {"emit"},
    "tomli_w": {"emit"},
    "plotly": {"report"},
    "rich": {"report", "cli"},
    "typer": {"cli"},
}
"""Rooms that own a third party."""


@cache
def modules():
    return sorted(PACKAGE.rglob("*.py"))


def room_of(path):
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


@cache
def nodes(path):
    return list(ast.walk(ast.parse(path.read_text())))


def imported(path):
    """The dotted name of every import."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


def told(path, fault):
    return f"{path.relative_to(PACKAGE)}: {fault}"


def imports_from_above(path):
    """Names that a file imports from rooms beside its own and the rooms below."""
    room = room_of(path)
    for name in imported(path):
        parts = name.split(".")
        if parts[0] != "autotune" or len(parts) < 2:
            continue
        other = parts[1] if is_module_of_ours(f"autotune.{parts[1]}") else "__init__"
        is_shared_file = other == "trial" and ".".join(parts[2:4]) in SHARED and room == "api"
        if other != room and other not in MAY_IMPORT[room] and not is_shared_file:
            yield name


def test_a_room_imports_only_what_lies_below():
    assert [told(path, name) for path in modules() for name in imports_from_above(path)] == []


STANDARD_LIBRARY_ONLY = {"protocol", "sandbox", "verdict"}
"""Rooms without any third party: supervisors and the user's own processes load them."""


def test_some_rooms_need_the_standard_library_alone():
    paths = [path for path in modules() if room_of(path) in STANDARD_LIBRARY_ONLY]
    assert {room_of(path) for path in paths} == STANDARD_LIBRARY_ONLY
    known = sys.stdlib_module_names | {"autotune"}
    assert [told(path, name) for path in paths for name in imported(path) if name.split(".")[0] not in known] == []


DOORS = {"lab": "autotune.lab.recording", "diagnose": "autotune.diagnose.diagnosing"}
"""The one module of a room that other rooms may import."""


def is_entered_beside_the_door(path, name):
    room = ".".join(name.split(".")[1:2])
    return room in DOORS and room != room_of(path) and not f"{name}.".startswith(f"{DOORS[room]}.")


def test_a_room_with_a_door_is_entered_by_the_door():
    offenders = [
        told(path, name) for path in modules() for name in imported(path) if is_entered_beside_the_door(path, name)
    ]
    assert offenders == []


def test_a_third_party_lives_in_its_own_rooms():
    offenders = [
        told(path, name)
        for path in modules()
        for name in imported(path)
        if room_of(path) not in THIRD_PARTY.get(name.split(".")[0], {room_of(path)})
    ]
    assert offenders == []


def test_a_setting_loads_torch_only_when_it_is_applied_or_read():
    offenders = [
        told(path, ast.unparse(node))
        for path in sorted((PACKAGE / "settings").glob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, (ast.Import, ast.ImportFrom)) and "torch" in ast.dump(node)
    ]
    assert offenders == []


def started_by(path):
    """(name in `entry_points`, room of the program behind the name) of every program that a file may start."""
    for name in imported(path):
        module, _, entry = name.rpartition(".")
        assert name != entry_points.__name__, f"{path}: import entry points by name, so that this test sees them"
        if module == entry_points.__name__:
            value = getattr(entry_points, entry)
            if isinstance(value, Program):
                yield entry, value.module.split(".")[1]
            elif entry == "INJECT":
                yield entry, Path(value).relative_to(PACKAGE).parts[0]


def test_a_room_starts_only_programs_that_it_may():
    offenders = [
        told(path, f"{entry} is in {other}")
        for path in modules()
        for entry, other in started_by(path)
        if other not in MAY_START.get(room_of(path), ())
    ]
    assert offenders == []


def test_programs_are_there_and_have_a_caller():
    programs = {name for name, value in vars(entry_points).items() if isinstance(value, Program)}
    assert programs
    for name in programs:
        program = getattr(entry_points, name)
        assert callable(getattr(import_module(program.module), program.function)), name
    assert programs | {"INJECT"} == {name for path in modules() for name, _ in started_by(path)}


def words(path):
    """Every string in the code of a file, docstrings left out."""
    documentation = {id(node.value) for node in nodes(path) if isinstance(node, ast.Expr)}
    for node in nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)) and id(node) not in documentation:
            yield node.value if isinstance(node.value, str) else node.value.decode(errors="replace")


@cache
def is_module_of_ours(name):
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def test_one_file_names_modules_in_strings():
    """Every other file imports the module, or starts the program by an entry point."""
    offenders = [
        told(path, name)
        for path in modules()
        if path != Path(entry_points.__file__)
        for text in words(path)
        for name in re.findall(r"\bautotune(?:\.\w+){2,}", text)
        if is_module_of_ours(name)
    ]
    assert offenders == []


def test_one_file_names_the_variables_between_our_programs():
    """Every other file takes the names from `autotune.protocol.environment`."""
    ours = {value for name, value in vars(environment).items() if name.isupper() and str(value).startswith("AUTOTUNE_")}
    offenders = [
        told(path, text)
        for path in modules()
        if path != Path(environment.__file__)
        for text in words(path)
        if text.rstrip("=") in ours - {environment.PREFIX}
    ]
    assert offenders == []


def is_light(path, name):
    first, *rest = name.split(".")
    if first == "autotune":
        return path.name == "job.py" or (rest[0] in LIGHT and rest[:2] != ["protocol", "job"])
    return first in sys.stdlib_module_names


def test_the_protocol_is_light():
    paths = sorted((PACKAGE / "protocol").glob("*.py"))
    assert [told(path, name) for path in paths for name in imported(path) if not is_light(path, name)] == []
