"""Reads the values of each source (flags, `AUTOTUNE_*`, study file) and collects all problems."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from autotune.errors import AutotuneError, ConfigError, UsageError
from autotune.model.maps import check_map, target_of
from autotune.settings import GROUP_OF_FIELD
from autotune.space.ranges import parse_range, parse_value
from autotune.spec import KNOB_PREFIX, PREFIX
from autotune.study_file.search_options import (
    BY_NAME,
    KEYS,
    NO_VARIABLE,
    TABLES,
    VARIABLES,
    WHAT_TO_RUN,
    Kind,
    flag_of,
)
from autotune.study_file.study_schema import read_values
from autotune.study_file.study_toml import StudyFile, rebase_storage

EXPORTED = frozenset(PREFIX + name.upper() for name in GROUP_OF_FIELD)
IN_TRIALS = (PREFIX + "TRIAL", PREFIX + "JOB")
"""Variables of processes that autotune starts. Other AUTOTUNE_ variables there are not the user's either."""


class Origin(StrEnum):
    """The source of a value; earlier members win."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"
    DEFAULT = "default"


class Problems:
    """Collects problems, to report all at once."""

    def __init__(self) -> None:
        self._sentences: list[str] = []
        self._is_in_file = False

    def add(self, origin: Origin, key: str, sentence: str, file: StudyFile | None = None) -> None:
        """Notes a problem with the value of a key (of a table `set.KEY`), as the rest of a sentence."""
        if origin is Origin.FLAG:
            where = flag_of(key)
        elif origin is Origin.ENVIRONMENT:
            where = VARIABLES[key]
        else:
            where = f"{file.label if file is not None else 'the study file'}: {key}"
            self._is_in_file = True
        self._sentences.append(f"{where} {sentence}")

    def check(self) -> None:
        """Raises the collected problems; does nothing without a problem.

        Raises:
            ConfigError: At least one problem is in the study file.
            UsageError: All problems are in flags and variables.
        """
        if self._sentences:
            kind = ConfigError if self._is_in_file else UsageError
            raise kind("; ".join(dict.fromkeys(self._sentences)) + ".", "See autotune search --help.")


def read_flags(flags: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """Values of the flags by key; None, False and an empty list mean not given."""
    given = {key: value for key, value in flags.items() if value not in (None, False, [], ()) and key != "study_file"}
    for table in TABLES:
        if table in given:
            given[table] = _pairs(table, given[table], problems)
    values, wrong = read_values(given, is_text=True)
    for key, sentence in wrong:
        problems.add(Origin.FLAG, key, sentence)
    return values


def _pairs(table: str, texts: Sequence[str], problems: Problems) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            problems.add(Origin.FLAG, table, f"{text!r} is not of the form KEY=VALUE")
        elif key in pairs:
            problems.add(Origin.FLAG, table, f"names {key} twice")
        pairs[key] = value
    return pairs


def read_environment(environ: Mapping[str, str], problems: Problems) -> dict[str, Any]:
    """Values of the `AUTOTUNE_*` variables by key; an empty variable means not given."""
    given = {key: environ[name] for key, name in VARIABLES.items() if key in KEYS and environ.get(name)}
    values, wrong = read_values(given, is_text=True)
    for key, sentence in wrong:
        problems.add(Origin.ENVIRONMENT, key, sentence)
    return values


def unread_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """A sentence for every AUTOTUNE_ variable without a meaning; no sentence inside a trial."""
    if any(name in environ for name in IN_TRIALS):
        return
    known = set(VARIABLES.values())
    for name in sorted(name for name, value in environ.items() if value and name.startswith(PREFIX)):
        if name in known or name in EXPORTED or name.startswith(KNOB_PREFIX):
            continue
        key = name.removeprefix(PREFIX)
        close = difflib.get_close_matches(key, [name.removeprefix(PREFIX) for name in sorted(known)], n=1)
        if key.lower() in NO_VARIABLE:
            yield f"{name} is not read: say it on the command line, or in a study file."
        elif close:
            yield f"{name} is no variable that autotune reads; did you mean {PREFIX}{close[0]}?"
        else:
            yield f"{name} is no variable that autotune reads."


def read_file(file: StudyFile, cwd: Path, problems: Problems) -> dict[str, Any]:
    """Values of a study file by key, with paths relative to `cwd`."""
    values, wrong = read_values(file.values, is_text=False)
    for key, sentence in wrong:
        problems.add(Origin.FILE, key, sentence, file)
    named = [key for key in WHAT_TO_RUN if key in values]
    if len(named) > 1:
        problems.add(Origin.FILE, " and ".join(named), "exclude each other", file)
    if "command" in values and "nproc_per_node" in values:
        problems.add(Origin.FILE, "nproc_per_node", "goes with a script; say it in the command", file)
    folder = file.path.parent
    if folder != cwd:
        for key, value in values.items():
            values[key] = _from_folder(BY_NAME[key].kind, value, folder, cwd)
    return values


def _from_folder(kind: Kind, value: Any, folder: Path, cwd: Path) -> Any:
    """A value of a study file in the folder, as the same value is written in the working directory."""
    if kind is Kind.PATH:
        return str(folder / value)
    if kind is Kind.PATHS:
        return [str(folder / path) for path in value]
    return rebase_storage(value, folder, cwd) if kind is Kind.DATABASE else value


def check_settings(said: Mapping[Origin, dict[str, Any]], file: StudyFile | None, problems: Problems) -> None:
    """Checks ranges and values of settings; only the script knows the values of a knob."""
    for origin, values in said.items():
        ranges, fixed = values.get("set", {}), values.get("fix", {})
        for key in ranges.keys() & fixed.keys():
            problems.add(origin, f"set.{key}", "is also in fix; keep one of them", file)
        for table, texts, parse in (("set", ranges, parse_range), ("fix", fixed, parse_value)):
            for key, text in texts.items():
                try:
                    if key in GROUP_OF_FIELD:
                        parse(key, text)
                except AutotuneError as error:
                    sentence = f"{text!r}: {error}".rstrip(".")
                    problems.add(origin, f"{table}.{key}", sentence, file)
        for key, template in values.get("map", {}).items():
            sentence = _why_no_map(key, template)
            if sentence:
                problems.add(origin, f"map.{key}", sentence, file)


def _why_no_map(key: str, template: str) -> str:
    """The problem with a map by itself; empty without a problem."""
    try:
        check_map(key, template)
        setting, value = target_of(key, template)
        if value is not None and setting in GROUP_OF_FIELD:
            parse_value(setting, value)
    except AutotuneError as error:
        return str(error).rstrip(".")
    return ""
