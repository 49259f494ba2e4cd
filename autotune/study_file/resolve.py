"""What the user asked: flags, then `AUTOTUNE_*`, then the study file, then the defaults, made into one SearchSpec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from autotune.errors import AutotuneError, ConfigError, UsageError
from autotune.model.maps import check_map, target_of
from autotune.settings import GROUP_OF_FIELD
from autotune.space.ranges import parse_range, parse_value
from autotune.spec import DEFAULT_BUDGET_S, DEFAULT_CONFIG, DEFAULT_STORAGE, SearchSpec
from autotune.study_file.command import ScriptCommand, module_command, script_command, whole_command
from autotune.study_file.file import PREFIX, StudyFile, find_study_file, rebase_storage
from autotune.study_file.knobs import unknown_names
from autotune.study_file.name import study_name
from autotune.study_file.schema import KEYS, TABLES, read_wishes

ABOUT_SCRIPT = ("args", "study", "take_over", "map", "samples_per_step", "nproc_per_node")
"""Keys of a file that describe the script which the file names; they do not hold for another one."""
WHAT_TO_RUN = ("script", "module", "command")
NO_VARIABLE = (*WHAT_TO_RUN, "args", "set", "fix", "map")
"""Keys that cannot be said by a variable: they name code to run, or are tables."""


class Origin(StrEnum):
    """Where a value comes from; the earlier one wins."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"
    DEFAULT = "default"


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """A search as asked, and where each part of it was said."""

    spec: SearchSpec
    job: ScriptCommand
    values: Mapping[str, Any]
    """What was said, by key; of a table by `set.KEY`. A key that nobody named is missing."""
    origins: Mapping[str, Origin]
    """By key, those with a default too; of a table by `set.KEY`."""
    file: Path | None
    """The study file that was read."""


def resolve(flags: Mapping[str, Any], tail: Sequence[str] | None, *, environ: Mapping[str, str], cwd: Path) -> Resolved:
    """The search that flags, environment and study file together ask for.

    Args:
        flags: By key, as text (`set`, `fix` and `map` as lists of `KEY=TEXT`, switches as booleans); None, False and an
            empty list mean not given. `study_file` names the file to read.
        tail: The words after `--`: arguments of the script, or a whole command when the flags name no script; None
            without a `--`.
        environ: The environment.
        cwd: The working directory, where the script will be started.

    Raises:
        ConfigError: Something in the study file cannot be used; all problems of all sources are named at once.
        UsageError: The same, for flags and the environment.
    """
    file = find_study_file(cwd, environ, flags.get("study_file"))
    problems = _Problems()
    said = {
        Origin.FLAG: _read_flags(flags, problems),
        Origin.ENVIRONMENT: _read_environment(environ, problems),
        Origin.FILE: _read_file(file, cwd, problems) if file is not None else {},
    }
    _check_settings(said, file, problems)
    flags_said = said[Origin.FLAG]
    words = _take_tail(flags_said, tail)
    if words is not None and "nproc_per_node" in flags_said:
        problems.add(Origin.FLAG, "nproc_per_node", "goes with a script; say it in the command")
    if "script" in flags_said and "module" in flags_said:
        problems.add(Origin.FLAG, "module", "and SCRIPT exclude each other; the script's arguments go after --")
    problems.check()
    whole = whole_command(words, cwd) if words is not None else None
    _leave_out_what_is_about_another_script(flags_said, whole, said[Origin.FILE], cwd)
    values, origins = _merge(said)
    job = whole or _job(values, cwd)
    for key, sentence in unknown_names(values, job, cwd):
        problems.add(origins[key], key, sentence, file)
    problems.check()
    spec = _spec(values, job, cwd)
    path = file.path if file is not None else None
    return Resolved(spec=spec, job=job, values=_flat(values), origins=origins, file=path)


class _Problems:
    """Collects what is wrong, to say all of it at once."""

    def __init__(self) -> None:
        self._sentences: list[str] = []
        self._is_in_file = False

    def add(self, origin: Origin, key: str, sentence: str, file: StudyFile | None = None) -> None:
        if origin is Origin.FLAG:
            table, _, name = key.partition(".")
            option = "SCRIPT" if key == "script" else f"--{table.replace('_', '-')}"
            where = f"{option} {name}".rstrip()
        elif origin is Origin.ENVIRONMENT:
            where = PREFIX + key.upper()
        else:
            where = f"{file.label if file is not None else 'the study file'}: {key}"
            self._is_in_file = True
        self._sentences.append(f"{where} {sentence}")

    def check(self) -> None:
        if self._sentences:
            kind = ConfigError if self._is_in_file else UsageError
            raise kind("; ".join(dict.fromkeys(self._sentences)) + ".", "See autotune search --help.")


def _read_flags(flags: Mapping[str, Any], problems: _Problems) -> dict[str, Any]:
    given = {key: value for key, value in flags.items() if value not in (None, False, []) and key != "study_file"}
    for table in TABLES:
        if table in given:
            given[table] = _pairs(table, given[table], problems)
    values, wrong = read_wishes(given, is_text=True)
    for key, sentence in wrong:
        problems.add(Origin.FLAG, key, sentence)
    return values


def _pairs(table: str, texts: Sequence[str], problems: _Problems) -> dict[str, str]:
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


def _read_environment(environ: Mapping[str, str], problems: _Problems) -> dict[str, Any]:
    names = {key: PREFIX + key.upper() for key in KEYS if key not in NO_VARIABLE}
    values, wrong = read_wishes({key: environ[name] for key, name in names.items() if environ.get(name)}, is_text=True)
    for key, sentence in wrong:
        problems.add(Origin.ENVIRONMENT, key, sentence)
    return values


def _read_file(file: StudyFile, cwd: Path, problems: _Problems) -> dict[str, Any]:
    values, wrong = read_wishes(file.values, is_text=False)
    for key, sentence in wrong:
        problems.add(Origin.FILE, key, sentence, file)
    named = [key for key in WHAT_TO_RUN if key in values]
    if len(named) > 1:
        problems.add(Origin.FILE, " and ".join(named), "exclude each other", file)
    if "command" in values and "nproc_per_node" in values:
        problems.add(Origin.FILE, "nproc_per_node", "goes with a script; say it in the command", file)
    folder = file.path.parent
    if folder != cwd:
        for key in ("script", "out"):
            if key in values:
                values[key] = str(folder / values[key])
        if "storage" in values:
            values["storage"] = rebase_storage(values["storage"], folder, cwd)
    return values


def _check_settings(said: Mapping[Origin, dict[str, Any]], file: StudyFile | None, problems: _Problems) -> None:
    """Checks ranges and values of settings; a knob's are known only to the script."""
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
    """What is wrong with a map by itself; empty when nothing is."""
    try:
        check_map(key, template)
        setting, value = target_of(key, template)
        if value is not None and setting in GROUP_OF_FIELD:
            parse_value(setting, value)
    except AutotuneError as error:
        return str(error).rstrip(".")
    return ""


def _take_tail(flags: dict[str, Any], tail: Sequence[str] | None) -> Sequence[str] | None:
    """Puts the words after `--` where they belong; a whole command is given back."""
    if tail is None:
        return None
    names_script = "script" in flags or "module" in flags
    if not names_script and tail and not tail[0].startswith("-"):
        return tail
    flags["args"] = list(tail)
    return None


def _leave_out_what_is_about_another_script(
    flags: Mapping[str, Any], whole: ScriptCommand | None, in_file: dict[str, Any], cwd: Path
) -> None:
    """When the command line names what to run, the file's part about another script does not hold."""
    named = whole.script if whole is not None else _script_of(flags, cwd)
    if named is None:
        return
    names_another = any(key in in_file for key in WHAT_TO_RUN) and _script_of(in_file, cwd) != named
    about_it = ABOUT_SCRIPT if names_another else ("args", "nproc_per_node") if whole is not None else ()
    for key in (*WHAT_TO_RUN, *about_it):
        in_file.pop(key, None)
    for table in ("set", "fix") if names_another else ():
        # Its knobs are those of the other script too.
        in_file[table] = {name: text for name, text in in_file.get(table, {}).items() if name in GROUP_OF_FIELD}


def _script_of(values: Mapping[str, Any], cwd: Path) -> str | None:
    """The script or module that one source names, so that two names of one file compare equal."""
    if "script" in values:
        return script_command(values["script"], (), cwd).script
    return str(values["module"]) if "module" in values else None


def _merge(said: Mapping[Origin, dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Origin]]:
    """One value per key, of the first source that has it; tables are merged entry by entry."""
    values: dict[str, Any] = {table: {} for table in TABLES}
    origins: dict[str, Origin] = {}
    for origin, wishes in said.items():
        # A setting that an earlier source ranges or fixes is not narrowed again by a later one.
        narrowed = values["set"].keys() | values["fix"].keys()
        for key, value in wishes.items():
            if key not in TABLES:
                origins.setdefault(key, origin)
                values.setdefault(key, value)
                continue
            taken = values["map"].keys() if key == "map" else narrowed
            new = {name: text for name, text in value.items() if name not in taken}
            values[key] = {**values[key], **new}
            origins.update({f"{key}.{name}": origin for name in new})
    for key in KEYS:
        if key not in TABLES and key not in WHAT_TO_RUN:
            origins.setdefault(key, Origin.DEFAULT)
    return values, origins


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with those of tables under `set.KEY`."""
    flat = {key: value for key, value in values.items() if key not in TABLES}
    return flat | {f"{table}.{name}": text for table in TABLES for name, text in values[table].items()}


def _job(values: Mapping[str, Any], cwd: Path) -> ScriptCommand:
    args, num_processes = values.get("args", []), values.get("nproc_per_node", 1)
    if "script" in values:
        return script_command(values["script"], args, cwd, num_processes=num_processes)
    if "module" in values:
        return module_command(values["module"], args, num_processes=num_processes)
    if "command" in values:
        return whole_command([*values["command"], *args], cwd)
    raise UsageError(
        "There is no script to search.",
        'Name it: autotune search train.py; or write script = "train.py" in study.toml.',
    )


def _spec(values: Mapping[str, Any], job: ScriptCommand, cwd: Path) -> SearchSpec:
    return SearchSpec(
        command=job.command,
        script=job.script,
        cwd=str(cwd),
        study=study_name(values.get("study", job.default_study)),
        storage=values.get("storage", DEFAULT_STORAGE),
        memory_cap=values.get("memory_cap"),
        max_trials=values.get("trials"),
        budget_s=values.get("time", DEFAULT_BUDGET_S),
        effective_batch=values.get("effective_batch", "fixed"),
        ranges=tuple(values["set"].items()),
        fixed=tuple(values["fix"].items()),
        maps=tuple(values["map"].items()),
        samples_per_step=values.get("samples_per_step"),
        take_over=study_name(values["take_over"]) if "take_over" in values else "",
        out=values.get("out", DEFAULT_CONFIG),
        force=values.get("force", False),
        seed=values.get("seed", 0),
        device=values.get("device", "auto"),
        num_processes_per_node=job.num_processes_per_node,
        require_gain=values.get("require_gain", False),
        share_gpu=values.get("share_gpu", False),
        allow_batchnorm_accumulation=values.get("allow_batchnorm_accumulation", False),
    )
