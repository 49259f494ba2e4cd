"""Merges flags, `AUTOTUNE_*`, study file and defaults, in this order, into a SearchSpec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.settings import GROUP_OF_FIELD
from autotune.spec import SearchSpec
from autotune.study_file.command import ScriptCommand, module_command, script_command, whole_command
from autotune.study_file.declared_knobs import unknown_names
from autotune.study_file.name import study_name
from autotune.study_file.search_options import KEYS, OPTIONS, TABLES, VARIABLES, WHAT_TO_RUN
from autotune.study_file.sources import Origin, Problems, check_settings, read_environment, read_file, read_flags
from autotune.study_file.study_toml import StudyFile, find_study_file

ABOUT_SCRIPT = tuple(option.name for option in OPTIONS if option.about_script)


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """A search with the source of each value."""

    spec: SearchSpec
    job: ScriptCommand
    values: Mapping[str, Any]
    """Given values by key, for entries of a table by `set.KEY`; keys without a given value are missing."""
    origins: Mapping[str, Origin]
    """Sources by key, defaults included; for entries of a table by `set.KEY`."""
    file: StudyFile | None
    """The study file; None without a study file."""


def resolve(flags: Mapping[str, Any], tail: Sequence[str] | None, *, environ: Mapping[str, str], cwd: Path) -> Resolved:
    """The search of flags, environment and study file together.

    Args:
        flags: By key, as text (`set`, `fix` and `map` as lists of `KEY=TEXT`, switches as booleans); None, False and an
            empty list mean not given. `study_file` names the study file.
        tail: The words after `--`: arguments of the script, or a whole command without a script among the flags; None
            without a `--`.
        environ: The environment.
        cwd: The working directory of the script.

    Raises:
        ConfigError: A value in the study file cannot be used; all problems of all sources are named at once.
        UsageError: A flag or a variable cannot be used.
    """
    file = find_study_file(cwd, environ, flags.get("study_file"))
    problems = Problems()
    said = {
        Origin.FLAG: read_flags(flags, problems),
        Origin.ENVIRONMENT: read_environment(environ, problems),
        Origin.FILE: read_file(file, cwd, problems) if file is not None else {},
    }
    check_settings(said, file, problems)
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
    return Resolved(spec=spec, job=job, values=_flat(values), origins=origins, file=file)


def resolve_option(key: str, flags: Mapping[str, Any], *, environ: Mapping[str, str], cwd: Path) -> Any:
    """The value of an option by flag, else by environment, else by study file; None without a value.

    Raises:
        ConfigError: A value in the study file cannot be used.
        UsageError: The flag or the variable cannot be used.
    """
    problems = Problems()
    variable = VARIABLES[key]
    said = read_flags({key: flags.get(key)}, problems)
    said = said or read_environment({variable: environ.get(variable, "")}, problems)
    file = find_study_file(cwd, environ, flags.get("study_file")) if not said else None
    if file is not None and key in file.values:  # What the file says of a search beside is not needed, and not checked.
        said = read_file(replace(file, values={key: file.values[key]}), cwd, problems)
    problems.check()
    return said.get(key)


def _take_tail(flags: dict[str, Any], tail: Sequence[str] | None) -> Sequence[str] | None:
    """Makes the words after `--` the script's arguments; gives back a whole command."""
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
    """Drops the study file's values about another script than the script of the command line."""
    named = whole.script if whole is not None else _script_of(flags, cwd)
    if named is None:
        return
    names_another = any(key in in_file for key in WHAT_TO_RUN) and _script_of(in_file, cwd) != named
    about_it = ABOUT_SCRIPT if names_another else ("args", "nproc_per_node") if whole is not None else ()
    for key in (*WHAT_TO_RUN, *about_it):
        in_file.pop(key, None)
    for table in ("set", "fix") if names_another else ():
        # The knobs belong to the other script too.
        in_file[table] = {name: text for name, text in in_file.get(table, {}).items() if name in GROUP_OF_FIELD}


def _script_of(values: Mapping[str, Any], cwd: Path) -> str | None:
    """The script or module of a source; two names of the same file compare equal."""
    if "script" in values:
        return script_command(values["script"], (), cwd).script
    return str(values["module"]) if "module" in values else None


def _merge(said: Mapping[Origin, dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Origin]]:
    """Values by key, each from the first source with a value; tables are merged entry by entry."""
    values: dict[str, Any] = {table: {} for table in TABLES}
    origins: dict[str, Origin] = {}
    for origin, wishes in said.items():
        # A later source does not narrow a setting again that an earlier source ranges or fixes.
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
    """The values, with entries of tables under `set.KEY`."""
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
        "There is no script to run.",
        'Name it after the verb, as train.py or -m pkg.train; or write script = "train.py" in study.toml.',
    )


def _spec(values: Mapping[str, Any], job: ScriptCommand, cwd: Path) -> SearchSpec:
    """The search of the values; fields of absent values have the defaults of SearchSpec."""
    fields = {
        option.spec_field: option.to_spec(values[option.name], cwd)
        for option in OPTIONS
        if option.spec_field is not None and option.name in values
    }
    if "study" not in fields:
        fields["study"] = study_name(job.default_study)
    return SearchSpec(
        command=job.command,
        script=job.script,
        cwd=str(cwd),
        num_processes_per_node=job.num_processes_per_node,
        **fields,
    )
