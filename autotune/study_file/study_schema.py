"""Checks the values of options by kind, with pydantic.

Loaded only for a search. The same rules read flags and variables, whose values are text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic_core import ErrorDetails, PydanticCustomError

from autotune.errors import AutotuneError, UsageError
from autotune.protocol.protection import BEST, Protection
from autotune.space.ranges import parse_range
from autotune.spec import STARTS
from autotune.study_file.search_options import BY_NAME, KEYS, Kind
from autotune.units import parse_memory_cap, parse_seconds

_EFFECTIVE_BATCH = "A range is written from the smaller number to the larger, like 64..256."
_BATCH_RANGE = re.compile(r"[0-9]+\.\.[0-9]+")
_DEVICE = re.compile(r"auto|cpu|cuda(:[0-9]+)?")
_WORDS_OF_TYPE = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a table",
}
_WORDS_OF_BOUND = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("above", "gt"),
    "less_than_equal": ("at most", "le"),
}
MAX_SEED = (1 << 32) - 1
"""The largest seed of NumPy, because a trial seeds NumPy too."""


def _refuse(error: AutotuneError) -> PydanticCustomError:
    # The message goes in as a value, because pydantic fills in braces of a template.
    return PydanticCustomError("ours", "{text}", {"text": f"{error.message.rstrip('.')}. {error.hint}".rstrip(" .")})


def _seconds(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse_seconds(value)
    except AutotuneError as error:
        raise _refuse(error) from error


def _memory_cap(value: str) -> str:
    try:
        parse_memory_cap(value, total_bytes=1 << 40)  # checks the form only; the amount depends on the device
    except AutotuneError as error:
        raise _refuse(error) from error
    return value


def _effective_batch(value: str) -> str:
    if _BATCH_RANGE.fullmatch(value):
        try:
            parse_range("batch_size", value)
        except AutotuneError as error:
            raise _refuse(UsageError(error.message, _EFFECTIVE_BATCH)) from error
    elif value not in ("fixed", "free"):
        raise _refuse(UsageError(f"{value!r} is none of fixed, free and LOW..HIGH.", _EFFECTIVE_BATCH))
    return value


def _device(value: str) -> str:
    if not _DEVICE.fullmatch(value):
        raise _refuse(
            UsageError(
                f"{value!r} is none of auto, cpu, cuda and cuda:N.", "Leave it away to train where the script trains."
            )
        )
    return value


def _protection(value: str) -> str:
    modes = (BEST, *Protection)
    if value not in modes:
        words = f"{value!r} is none of {', '.join(modes)}."
        raise _refuse(UsageError(words, "Leave it away to have the best that the system permits."))
    return value


def _start(value: str) -> str:
    if value not in STARTS:
        words = f"{value!r} is none of {', '.join(STARTS)}."
        raise _refuse(UsageError(words, "Leave it away to have what suits the device."))
    return value


def _text(value: object) -> object:
    """A setting's value in the words of the command line; lists become `a,b,c`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, list):
        return ",".join(str(_text(item)) for item in value)
    return value


def _words(value: object) -> object:
    if not isinstance(value, str):
        raise _refuse(UsageError(f"{value!r} is not text", "Write it in quotes."))
    return value


def _some_words(value: object) -> object:
    if _words(value) == "":
        raise _refuse(UsageError("is empty", "Leave it away instead."))
    return value


# Not str: pydantic takes only Unicode, and paths and arguments may hold any bytes in Python's disguise.
Words = Annotated[Any, AfterValidator(_words)]
Text = Annotated[Any, AfterValidator(_some_words)]
SettingText = Annotated[str, BeforeValidator(_text)]
Name = Annotated[str, Field(min_length=1)]


TYPES: dict[Kind, Any] = {
    Kind.TEXT: Text,
    Kind.PATH: Text,
    Kind.PATHS: Annotated[list[Text], Field(min_length=1)],
    Kind.DATABASE: Text,
    Kind.WORDS: list[Words],
    Kind.COMMAND: Annotated[list[Words], Field(min_length=1)],
    Kind.COUNT: Annotated[int, Field(ge=1)],
    Kind.SEED: Annotated[int, Field(ge=0, le=MAX_SEED)],
    Kind.AMOUNT: Annotated[float, Field(gt=0, allow_inf_nan=False)],
    Kind.TIME: Annotated[float, BeforeValidator(_seconds), Field(gt=0, allow_inf_nan=False)],
    Kind.MEMORY_CAP: Annotated[str, AfterValidator(_memory_cap)],
    Kind.EFFECTIVE_BATCH: Annotated[str, AfterValidator(_effective_batch)],
    Kind.DEVICE: Annotated[str, AfterValidator(_device)],
    Kind.PROTECTION: Annotated[str, AfterValidator(_protection)],
    Kind.START: Annotated[str, AfterValidator(_start)],
    Kind.TABLE: dict[Name, SettingText],
    Kind.SWITCH: bool,
}
"""Types with their checks, by kind of option."""
_FIELDS: dict[str, Any] = {name: (TYPES[BY_NAME[name].kind] | None, None) for name in KEYS}
_Values = create_model("_Values", __config__=ConfigDict(extra="forbid", frozen=True), **_FIELDS)


def read_values(values: Mapping[str, object], *, is_text: bool) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The valid values of a source, and the problems with all other values.

    Args:
        values: Values by key.
        is_text: Numbers and booleans are written as text, as flags and variables are.

    Returns:
        Values by key, and a pair of key and sentence for every bad value.
    """
    problems: dict[str, str] = {}
    wrong: set[str] = set()
    try:
        model = _Values.model_validate(dict(values), strict=not is_text)
        return {name: getattr(model, name) for name in KEYS if name in model.model_fields_set}, []
    except ValidationError as error:
        for details in error.errors(include_url=False):
            first, *inner = map(str, details["loc"])
            wrong.add(first)  # not read off the joined path: a key may hold a dot
            path = [first, *(part for part in inner if part != "[key]")]
            problems.setdefault(".".join(path), _sentence(path, details))
    valid, _ = read_values({name: value for name, value in values.items() if name not in wrong}, is_text=is_text)
    return valid, list(problems.items())


def _sentence(path: list[str], details: ErrorDetails) -> str:
    kind, value = details["type"], details["input"]
    if kind == "extra_forbidden":
        close = difflib.get_close_matches(path[-1], KEYS, n=1)
        return "is no key of a study" + (f"; did you mean {close[0]}?" if close else "")
    if kind == "ours":
        return details["msg"]
    if kind in _WORDS_OF_TYPE:
        return f"{value!r} is not {_WORDS_OF_TYPE[kind]}"
    if kind in _WORDS_OF_BOUND:
        word, bound = _WORDS_OF_BOUND[kind]
        return f"{value!r} is not {word} {details['ctx'][bound]}"
    if kind in ("string_too_short", "too_short"):
        return "is empty"
    return f"{value!r}: {details['msg'][:1].lower()}{details['msg'][1:]}"
