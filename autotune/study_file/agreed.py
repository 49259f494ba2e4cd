"""What a study file names outside of its own folder, and whether this user has agreed to that.

A folder may be somebody else's, cloned a minute ago. What its study file names inside of the folder is what the user
starts by naming the verb there; a server, a program, or a file elsewhere is used only after `autotune trust`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.study_file.file import StudyFile
from autotune.user_state import read_state, signed, write_state

_KIND = "study_files"
_SQLITE = ("sqlite:///", "sqlite+pysqlite:///")


def leading_outside(file: StudyFile) -> dict[str, str]:
    """By key, as text, what the file names outside of its own folder, and what leaves files unprotected.

    Empty where all lies inside and is protected.
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
        ("map", "map" in values and not is_script_inside and not _is_module_inside(module, folder)),
    ):
        if is_outside:
            found[key] = values[key]
    return {key: json.dumps(value, default=str) for key, value in found.items()}


def check_agreed(file: StudyFile | None, keys: Collection[str] | None = None) -> None:
    """Refuses what a study file names outside of its folder, unless this user has agreed to it.

    Args:
        file: The study file that holds; None without one.
        keys: Those of its keys that are used; None = all.

    Raises:
        UsageError: This user has not agreed; says to what, and how to.
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
            f"{file.label} leads out of its folder or leaves files unprotected, and you have not agreed: {named}.",
            f"If that is what you want, type: {trust_line(file)}",
        )


def check_storage_agreed(file: StudyFile) -> None:
    """As `check_agreed`, for the database alone."""
    check_agreed(file, ("storage",))


def agree(file: StudyFile) -> bool:
    """Whether this user's agreement to what the file names now could be noted."""
    return write_state(
        _KIND, str(file.path.absolute()), {key: signed(text) for key, text in leading_outside(file).items()}
    )


def trust_line(file: StudyFile) -> str:
    """What to type in the file's folder to agree to it."""
    return f"cd {json.dumps(str(file.path.parent))} && autotune trust"


def lies_in(text: object, folder: Path) -> bool:
    """Whether a path that a file in that folder names lies in it, links followed."""
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
