"""Finds values of a study file that lead outside the file's folder or drop protection, and checks the user's agreement.

A folder may come from a stranger, cloned a minute ago. By running autotune in the folder, the user starts whatever the
study file names inside the folder. A server, a program, a file elsewhere, or a lack of protection is accepted only
after `autotune trust`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.study_file.study_toml import StudyFile
from autotune.user_state import read_state, signed, write_state

_KIND = "study_files"
_SQLITE = ("sqlite:///", "sqlite+pysqlite:///")


def leading_outside(file: StudyFile) -> dict[str, str]:
    """Values of the file that lead outside the file's own folder or leave files unprotected, by key, as text.

    Empty when all values lie inside and files are protected.
    """
    values, folder = file.values, file.path.parent
    script, module = values.get("script"), values.get("module")
    is_script_inside = isinstance(script, str) and lies_in(script, folder)
    found: dict[str, Any] = {}
    if "storage" in values and not _is_storage_inside(values["storage"], folder):
        found["storage"] = values["storage"]
    if script is not None and not is_script_inside:
        found["script"] = script
    for key, is_outside in (
        ("module", module is not None and not _is_module_inside(module, folder)),
        ("command", "command" in values),
        ("out", "out" in values and not lies_in(values["out"], folder)),
        ("args", "args" in values and not is_script_inside and not _is_module_inside(module, folder)),
        ("protection", values.get("protection") == "none"),
        ("unprotected", values.get("unprotected") is True),
        ("writable", bool(values.get("writable"))),
        ("map", "map" in values and not is_script_inside and not _is_module_inside(module, folder)),
    ):
        if is_outside:
            found[key] = values[key]
    return {key: json.dumps(value, default=str) for key, value in found.items()}


def check_agreed(file: StudyFile | None, keys: Collection[str] | None = None) -> None:
    """Refuses a study file that leads outside its folder or drops protection, unless this user has agreed to it.

    Args:
        file: The study file in force; None without one.
        keys: Keys in use; None = all keys.

    Raises:
        UsageError: This user has not agreed; names the values and the command to type.
    """
    if file is None:
        return
    agreed = read_state(_KIND, str(file.path.absolute()))
    outside = leading_outside(file)
    new = {
        key: text for key, text in outside.items() if (keys is None or key in keys) and agreed.get(key) != signed(text)
    }
    if new:
        named = "; ".join(f"{key} = {text}" for key, text in new.items())
        raise UsageError(
            f"{file.label} names something outside its folder or leaves files unprotected, and you have not agreed: "
            f"{named}.",
            f"To agree, type: {trust_line(file)}",
        )


def check_storage_agreed(file: StudyFile) -> None:
    """Refuses a database outside the study file's folder, unless this user has agreed to the database.

    Raises:
        UsageError: This user has not agreed; names the database and the command to type.
    """
    check_agreed(file, ("storage",))


def agree(file: StudyFile) -> bool:
    """Notes this user's agreement to all present values that need one; true when the note is written."""
    return write_state(
        _KIND, str(file.path.absolute()), {key: signed(text) for key, text in leading_outside(file).items()}
    )


def trust_line(file: StudyFile) -> str:
    """The command to type in order to agree to the study file."""
    return f"cd {json.dumps(str(file.path.parent))} && autotune trust"


def lies_in(text: object, folder: Path) -> bool:
    """Whether a path named by a file in the folder lies in the folder, links followed."""
    if not isinstance(text, str) or "\0" in text:
        return False
    real = Path(os.path.realpath(folder / Path(os.path.expanduser(text))))  # noqa: PTH111  never raises
    return real.is_relative_to(os.path.realpath(folder))


def _is_storage_inside(text: object, folder: Path) -> bool:
    if not isinstance(text, str):
        return False
    path = next((text.removeprefix(start) for start in _SQLITE if text.startswith(start)), text)
    if path == text and ("://" in text or (text.partition(":")[0].isalpha() and ":" in text)):
        return False
    return not path.startswith("file:") and "?" not in path and lies_in(path, folder)


def _is_module_inside(name: object, folder: Path) -> bool:
    """Whether `python -m NAME`, started in the folder, runs code of the folder."""
    if not isinstance(name, str) or not name:
        return False
    top = folder / name.partition(".")[0]
    return any(path.exists() and lies_in(str(path), folder) for path in (top, top.with_suffix(".py")))
