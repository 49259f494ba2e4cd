"""The user's own knobs: text in settings, files and databases; values of the default's type in the script."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from autotune.errors import ConfigError
from autotune.settings import GROUP_OF_FIELD, Settings, text_of

Knob = str | int | float | bool

_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_LIKENESS = 0.88
"""Likeness to a setting's name from which a knob's name counts as a slip: `batchsize` is 0.95 like batch_size."""


def split_defaults(defaults: Mapping[str, Any]) -> tuple[Settings, dict[str, Knob]]:
    """The settings and the knobs among the keywords of a call.

    Raises:
        SearchSpaceError: The value of a setting is impossible.
        ConfigError: A knob is neither text nor a number nor a boolean, or its name looks like a setting's.
    """
    settings = {name: value for name, value in defaults.items() if name in GROUP_OF_FIELD}
    knobs = {name: value for name, value in defaults.items() if name not in GROUP_OF_FIELD}
    for name, value in knobs.items():
        if not isinstance(value, (str, int, float)):
            raise ConfigError(f"The knob {name} is {value!r}.", "A knob is text, a number or a boolean.")
        alike = difflib.get_close_matches(name, GROUP_OF_FIELD, n=1, cutoff=_LIKENESS)
        if alike:
            raise ConfigError(f"{name!r} is not a setting.", f"Write {alike[0]}, or name the knob less like it.")
    return Settings(**settings, knobs=tuple((name, text_of(value)) for name, value in knobs.items())), knobs


def value_of(name: str, text: str, default: Knob) -> Knob:
    """A knob's value of the default's type; the default when the text is empty (left to the script).

    Raises:
        ConfigError: The text is no value of that type.
    """
    if text == "":
        return default
    try:
        return _BOOLEANS[text.lower()] if isinstance(default, bool) else type(default)(text)
    except (KeyError, ValueError):
        kind = type(default).__name__
        raise ConfigError(
            f"The knob {name} is {text!r}, and its default {default!r} is of type {kind}.",
            "Give the default the type that all its values have.",
        ) from None
