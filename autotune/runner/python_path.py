"""The variable PYTHONPATH for processes of the user's script."""

from __future__ import annotations

import os
from pathlib import Path

from autotune.protocol.entry_points import INJECT


def absolute_entries(value: str, cwd: str) -> str:
    """The variable with absolute entries, as Python makes them at its start; empty for an empty variable.

    A fork server starts in another folder than the script, where `PYTHONPATH=.` would be that folder.

    Args:
        value: The variable as the user has set it; an empty entry between separators is the working folder.
        cwd: Working folder of the script.
    """
    if not value:
        return ""
    return os.pathsep.join(str(Path(cwd, entry)) for entry in value.split(os.pathsep))


def with_inject(value: str, cwd: str) -> str:
    """The variable with our folder in front, for a process to which autotune is attached.

    Args:
        value: As for `absolute_entries`.
        cwd: Working folder of the script.
    """
    return os.pathsep.join(filter(None, [INJECT, absolute_entries(value, cwd)]))
