"""Judges values of a study file by the file's folder: a value outside the folder needs the user's agreement."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_SQLITE = ("sqlite:///", "sqlite+pysqlite:///")


@dataclass(frozen=True, slots=True)
class FileOrigin:
    """The folder of a study file, and the code that the file starts."""

    folder: Path
    script: object = None
    module: object = None

    @property
    def starts_own_code(self) -> bool:
        """Whether the file starts code of its own folder, which takes any argument."""
        return self.has_file(self.script) or self.has_module(self.module)

    def has_file(self, path: object) -> bool:
        """Whether a path lies in the folder."""
        return lies_in(path, self.folder)

    def has_database(self, text: object) -> bool:
        """Whether a database is a file in the folder."""
        if not isinstance(text, str):
            return False
        path = next((text.removeprefix(start) for start in _SQLITE if text.startswith(start)), text)
        if path == text and ("://" in text or (text.partition(":")[0].isalpha() and ":" in text)):
            return False
        return not path.startswith("file:") and "?" not in path and self.has_file(path)

    def has_module(self, name: object) -> bool:
        """Whether `python -m NAME`, started in the folder, runs code of the folder."""
        if not isinstance(name, str) or not name:
            return False
        top = self.folder / name.partition(".")[0]
        return any(path.exists() and self.has_file(str(path)) for path in (top, top.with_suffix(".py")))


def lies_in(text: object, folder: Path) -> bool:
    """Whether a path named by a file in the folder lies in the folder, links followed."""
    if not isinstance(text, str) or "\0" in text:
        return False
    real = Path(os.path.realpath(folder / Path(os.path.expanduser(text))))  # noqa: PTH111  never raises
    return real.is_relative_to(os.path.realpath(folder))
