"""Finds and reads a study file, and the database of the study file.

A study file is `study.toml` in the working directory, `[tool.autotune]` in `pyproject.toml`, or a named file. Keys are
the long options with underscores; paths are relative to the file's folder.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.errors import ConfigError
from autotune.spec import DEFAULT_STORAGE
from autotune.study_file.search_options import VARIABLES

STUDY_FILE = "study.toml"
PROJECT_FILE = "pyproject.toml"
MAX_FILE_BYTES = 1 << 20

_SQLITE_URL = re.compile(r"(sqlite(?:\+\w+)?:///)(?!file:|:memory:)([^?]+)(\?.*)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyFile:
    """The unchecked values of a study file."""

    path: Path
    label: str
    """Name of the file in messages."""
    values: Mapping[str, Any]


def find_study_file(cwd: Path, environ: Mapping[str, str], asked: str | None = None) -> StudyFile | None:
    """The study file in force: the named file, or the study file of the working directory; None without a study file.

    Args:
        cwd: The working directory.
        environ: The environment; AUTOTUNE_STUDY_FILE may name the file.
        asked: Path of the file, relative to `cwd`.

    Raises:
        ConfigError: The file cannot be read or is not TOML, or the named file does not exist.
    """
    asked = asked or environ.get(VARIABLES["study_file"]) or None
    if asked is not None:
        path = cwd / asked
        return _study_file(path, asked, is_project=path.name == PROJECT_FILE)
    if (cwd / STUDY_FILE).is_file():
        return _study_file(cwd / STUDY_FILE, STUDY_FILE, is_project=False)
    if (cwd / PROJECT_FILE).is_file():
        file = _study_file(cwd / PROJECT_FILE, PROJECT_FILE, is_project=True)
        return file if file.values else None
    return None


def _study_file(path: Path, label: str, *, is_project: bool) -> StudyFile:
    values = _read_toml(path, label)
    if is_project:
        label = f"[tool.autotune] of {label}"
        tool = values.get("tool", {})
        values = tool.get("autotune", {}) if isinstance(tool, dict) else {}
        if not isinstance(values, dict):
            raise ConfigError(f"{label} is not a table.", "Write its keys below a line [tool.autotune].")
    return StudyFile(path=path, label=label, values=values)


def _read_toml(path: Path, label: str) -> dict[str, Any]:
    hint = "Name another one with --study-file."
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"The study file {label} cannot be read: {error.strerror}.", hint) from error
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{label} is larger than {MAX_FILE_BYTES} bytes, so it is no study file.", hint)
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{label} is not well-formed TOML: {str(error).rstrip('.')}.", "Mend that line.") from error


def resolve_storage(
    asked: str | None,
    *,
    environ: Mapping[str, str],
    cwd: Path,
    check: Callable[[StudyFile], None] = lambda file: None,
) -> str:
    """The database of a verb: from the flag, AUTOTUNE_STORAGE, the study file, or the default.

    Args:
        asked: Value of `--storage`.
        environ: The environment.
        cwd: The working directory.
        check: Called with the study file before the study file's database is used.

    Raises:
        ConfigError: The study file cannot be read, or `storage` is not text.
    """
    said = asked or environ.get(VARIABLES["storage"])
    if said:
        return said
    file = find_study_file(cwd, environ)
    if file is None or "storage" not in file.values:
        return DEFAULT_STORAGE
    check(file)
    value = file.values["storage"]
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{file.label}: storage {value!r} is not text.", 'Write it like "studies/autotune.db".')
    return rebase_storage(value, file.path.parent, cwd)


def rebase_storage(text: str, folder: Path, cwd: Path) -> str:
    """A database of a study file in the folder, written relative to the working directory."""
    if folder == cwd:
        return text
    if "://" not in text:
        return str(folder / Path(text).expanduser())
    match = _SQLITE_URL.fullmatch(text)
    return f"{match[1]}{folder / match[2]}{match[3] or ''}" if match is not None else text
