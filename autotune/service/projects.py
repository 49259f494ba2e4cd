"""The registered projects of a server or a worker: names and folders."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from autotune.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REMEDY = "Write --project DIR or --project NAME=DIR."


def parse_projects(words: Iterable[str], cwd: Path) -> dict[str, Path]:
    """Absolute folders by name, from `DIR` and `NAME=DIR`; the default name is the folder's.

    Raises:
        UsageError: A folder does not exist, a name is taken twice, or a name has other characters than letters,
            digits, `.`, `_` and `-`.
    """
    found: dict[str, Path] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or "/" in name:
            name, text = "", word
        folder = (cwd / Path(text).expanduser()).resolve()
        name = name or folder.name
        if not folder.is_dir():
            raise UsageError(f"The project folder {text!r} is not a folder.", _REMEDY)
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} cannot be the name of a project.", f"Give a name: --project NAME={text}")
        if name in found:
            raise UsageError(f"Two projects have the name {name!r}.", "Give each a name: --project NAME=DIR")
        found[name] = folder
    return found
