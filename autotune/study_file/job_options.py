"""Checks the options of a job of the service, and turns the options into flags of `autotune search`.

A job comes from another person on another machine. It therefore holds no command, no place and no less protection than
the machine's user chose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.errors import UsageError
from autotune.protocol.protection import Protection
from autotune.study_file.search_options import BY_NAME, IN_JOB, KEYS, Kind
from autotune.study_file.sources import Origin, Problems, check_settings
from autotune.study_file.study_schema import read_values

_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
_JSON_TYPES: dict[Kind, dict[str, Any]] = {
    Kind.COUNT: {"type": "integer", "minimum": 1},
    Kind.SEED: {"type": "integer", "minimum": 0, "maximum": (1 << 32) - 1},
    Kind.AMOUNT: {"type": "number", "exclusiveMinimum": 0},
    Kind.TIME: {"anyOf": [{"type": "string"}, {"type": "number", "exclusiveMinimum": 0}]},
    Kind.TABLE: {"type": "object"},
    Kind.SWITCH: {"type": "boolean"},
}
"""JSON schemas of kinds that are not written as text."""


def check_job_options(options: Mapping[str, object]) -> dict[str, Any]:
    """The options, checked as a study file is.

    Args:
        options: Values by key, as in a study file.

    Raises:
        UsageError: An option is unknown, impossible, or not for jobs; names all problems.
    """
    names = {option.name for option in IN_JOB}
    foreign = [f"{key} is not an option of a job" for key in options if key in KEYS and key not in names]
    valid, problems = read_values({key: value for key, value in options.items() if key in names}, is_text=False)
    _, unknown = read_values({key: value for key, value in options.items() if key not in KEYS}, is_text=False)
    sentences = [*foreign, *(f"{key} {sentence}" for key, sentence in (*problems, *unknown))]
    if valid.get("protection") == Protection.NONE:
        sentences.append("protection none is for the user of a machine to choose")
    if sentences:
        raise UsageError(f"The options of the job cannot be used: {'; '.join(sentences)}.", "See docs/service.md.")
    problems_of_settings = Problems()
    check_settings({Origin.FLAG: valid}, None, problems_of_settings)
    problems_of_settings.check()
    return {key: value for key, value in options.items() if value is not None}


def as_flags(options: Mapping[str, object]) -> dict[str, Any]:
    """The checked options in the form of typed flags: text, lists of `KEY=TEXT`, and switches."""
    valid, _ = read_values(dict(options), is_text=False)
    return {key: _as_typed(BY_NAME[key].kind, value) for key, value in valid.items()}


def _as_typed(kind: Kind, value: Any) -> Any:
    if kind is Kind.SWITCH:
        return bool(value)
    if kind is Kind.TABLE:
        return [f"{name}={text}" for name, text in value.items()]
    return f"{value:.3f}s" if kind is Kind.TIME else str(value)


def job_words(options: Mapping[str, object]) -> list[str]:
    """The checked options as words of a command line; each flag is one word with its value."""
    words: list[str] = []
    for key, typed in as_flags(options).items():
        flag = BY_NAME[key].flag
        if isinstance(typed, bool):
            words += [flag] if typed else []
        else:
            words += [f"{flag}={text}" for text in (typed if isinstance(typed, list) else [typed])]
    return words


def job_options_schema() -> dict[str, Any]:
    """The JSON schema of the options, with the help texts."""
    properties = {
        option.name: {**_JSON_TYPES.get(option.kind, _TEXT), "description": option.help_text("search")}
        for option in IN_JOB
    }
    return {"type": "object", "additionalProperties": False, "properties": properties}
