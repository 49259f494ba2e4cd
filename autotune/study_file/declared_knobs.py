"""Finds names in --set, --fix and --map that are neither settings nor possible knobs of the script."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autotune.model.maps import mapped_settings
from autotune.settings import GROUP_OF_FIELD
from autotune.study_file.command import ScriptCommand

MAX_FILES = 20_000
"""Most files of any kind in the folders of the search for knobs; larger projects are left to the probe."""
MAX_FILE_BYTES = 1 << 20


def unknown_names(values: Mapping[str, Any], job: ScriptCommand, cwd: Path) -> Iterator[tuple[str, str]]:
    """Pairs of key and sentence for names without a setting, a map, or a place in the user's source.

    A knob is declared by a call of `autotune.load`, which only a run shows. Before any run, a source file must contain
    the name of the knob and the word autotune.

    Args:
        values: Merged values of `set`, `fix` and `map`.
        job: Command of the script.
        cwd: Folder of the run.
    """
    mapped = mapped_settings(values["map"].items())
    searched = {**values["set"], **values["fix"]}
    folders = dict.fromkeys((cwd, *(() if job.is_module else (Path(job.script).parent,))))
    for name in searched:
        if name not in GROUP_OF_FIELD and name not in mapped and not _is_in_source(name, tuple(folders)):
            table = "set" if name in values["set"] else "fix"
            yield f"{table}.{name}", f"is no setting, and no knob of the script{_what_to_do(name)}"
    for key, template in values["map"].items():
        (name,) = mapped_settings([(key, template)])
        if name not in GROUP_OF_FIELD and name not in searched and not _is_in_source(name, tuple(folders)):
            yield f"map.{key}", f"maps no setting, and a knob without values{_what_to_do(name, is_mapped=True)}"


def _what_to_do(name: str, *, is_mapped: bool = False) -> str:
    close = difflib.get_close_matches(name, GROUP_OF_FIELD, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    if is_mapped:
        return f"; give it some with --set {name}=a,b"
    return f"; declare it with --map {name}=--{name}={{}} where the script has such an argument"


def _is_in_source(name: str, folders: tuple[Path, ...]) -> bool:
    """True when a source file below these folders names the knob and autotune, or when the files are too many."""
    word = re.compile(rf"\b{re.escape(name)}\b".encode())
    num_files = 0
    for folder in folders:
        for here, inner, files in os.walk(folder):
            inner[:] = [part for part in inner if _holds_source(Path(here, part))]
            num_files += len(files)
            if num_files > MAX_FILES:
                return True
            if any(_declares(word, Path(here, file)) for file in files if file.endswith(".py")):
                return True
    return False


def _holds_source(folder: Path) -> bool:
    """True for a folder of the user's code: not hidden, and no environment."""
    return not folder.name.startswith(".") and not (folder / "pyvenv.cfg").exists()


def _declares(word: re.Pattern[bytes], path: Path) -> bool:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES)
    except OSError:
        return False
    return b"autotune" in content and word.search(content) is not None
