"""Finds values of a study file that lead outside the file's folder or drop protection, and checks the user's agreement.

A folder may come from a stranger, cloned a minute ago. By running autotune in the folder, the user starts whatever the
study file names inside the folder. A server, a program, a file elsewhere, or a lack of protection is accepted only
after `autotune trust`.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from autotune.errors import UsageError
from autotune.study_file.file_origin import FileOrigin
from autotune.study_file.search_options import OPTIONS
from autotune.study_file.study_toml import StudyFile
from autotune.user_state import read_state, signed, write_state

_KIND = "study_files"


def leading_outside(file: StudyFile) -> dict[str, str]:
    """Values of the file that lead outside the file's own folder or leave files unprotected, by key, as text.

    Empty when all values lie inside and files are protected.
    """
    values = file.values
    origin = FileOrigin(file.path.parent, script=values.get("script"), module=values.get("module"))
    return {
        option.name: json.dumps(values[option.name], default=str)
        for option in OPTIONS
        if option.name in values and option.leads_outside(values[option.name], origin)
    }


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
