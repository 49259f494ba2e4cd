"""The variable PYTHONPATH for processes of the user's script."""

from __future__ import annotations

import os
from pathlib import Path

from autotune.protocol.entry_points import INJECT


def absolute_entries(value: str, cwd: str) -> str:
    """PYTHONPATH with absolute entries, as after the start of Python in the script's folder; empty stays empty.

    A fork server does not start in the script's folder, and would read `PYTHONPATH=.` as the server's own folder.

    Args:
        value: The variable as set by the user; an empty entry between separators is the working folder.
        cwd: Working folder of the script.
    """
    if not value:
        return ""
    return os.pathsep.join(str(Path(cwd, entry)) for entry in value.split(os.pathsep))


def with_inject(value: str, cwd: str) -> str:
    """PYTHONPATH with our folder in front, for a process of the script with autotune attached.

    Args:
        value: As for `absolute_entries`.
        cwd: Working folder of the script.
    """
    return os.pathsep.join(filter(None, [INJECT, absolute_entries(value, cwd)]))
