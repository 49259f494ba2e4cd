"""A tuned config in the forms of further programs. Each kind is one function from the config to text."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from autotune.emit import yaml_format
from autotune.emit.frameworks import FRAMEWORKS, FrameworkArguments, keras_left_out, without_variable
from autotune.emit.headline import headline, one_line
from autotune.emit.tuned_config import TunedConfig, config_text
from autotune.errors import ConfigError, UsageError
from autotune.settings import SETTINGS, Settings, text_of, variables_of


@dataclass(frozen=True, slots=True)
class Kind:
    """One form of a tuned config."""

    render: Callable[[TunedConfig], str]
    suffix: str
    """Suffix of files in this form, without the dot."""
    is_config: bool = False
    """Whether `read_config` reads this form."""


def export(config: TunedConfig, kind: str) -> str:
    """The config as text of one of `KINDS`, ending in a newline.

    Raises:
        UsageError: The kind is unknown.
        ConfigError: The form cannot express the config.
    """
    if kind not in KINDS:
        raise UsageError(f"{kind!r} is not a form of a tuned config.", f"It is one of {', '.join(KINDS)}.")
    return KINDS[kind].render(config)


def _environment(config: TunedConfig) -> str:
    """Assignments for a shell, one per line: variables read by libraries at the start, then every setting.

    Use: `set -a; . FILE`. Options of the allocator in the environment of `export` stay.
    """
    settings = config.settings
    variables = variables_of(settings, os.environ)
    for name, value in settings.to_dict().items():
        if name != "knobs" and value is not None:
            variables[f"AUTOTUNE_{name.upper()}"] = text_of(value)
    for name, value in settings.knobs:
        # The prefix keeps knobs apart from settings and from options such as AUTOTUNE_STORAGE.
        variable = "AUTOTUNE_KNOB_" + re.sub(r"[^A-Za-z0-9]", "_", name).upper()
        if variable in variables:
            raise ConfigError(f"Two knobs would both be {variable}.", "Give one another name.")
        variables[variable] = value
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())


def _keras_environment(config: TunedConfig) -> str:
    """The variables that Keras and the engines read, for a shell; comments name the settings without a variable."""
    of_keras = {each.name: getattr(config.settings, each.name) for each in SETTINGS if each.keras is not None}
    for name in without_variable(config):
        of_keras.pop(name)
    natural = Settings(**{name: getattr(config.script.natural, name) for name in of_keras})
    tuned = Settings(**of_keras)
    # Beside the values that differ from the engines' own: ways back from what the user's environment says.
    variables = variables_of(tuned, os.environ, Settings()) | variables_of(tuned, os.environ, natural)
    comments = (*headline(config)[:-1], *(f"NOT in here: {sentence}" for sentence in keras_left_out(config)))
    lines = [f"# {one_line(comment)}\n" for comment in comments]
    return "".join([*lines, *(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())])


def _for_framework(name: str, config: TunedConfig) -> str:
    """The framework's arguments as YAML below comments; DeepSpeed takes JSON only."""
    arguments = FRAMEWORKS[name](config)
    if name == "deepspeed":
        # JSON has no comments, and DeepSpeed ignores unknown keys.
        values = {"autotune": {"comments": list(_comments(config, arguments))}, **arguments.values}
        return json.dumps(values, indent=2, allow_nan=False) + "\n"
    # Hydra reads the package from the first line alone.
    first = ("@package _global_",) if name == "hydra" else ()
    return yaml_format.render(arguments.values, (*first, *_comments(config, arguments)))


def _comments(config: TunedConfig, arguments: FrameworkArguments) -> tuple[str, ...]:
    num_processes = config.provenance.world_size
    batch = config.settings.effective_batch(num_processes)
    processes = f"{num_processes} process" + ("es" if num_processes > 1 else "")
    lines = (
        *headline(config)[:-1],
        *((f"With {processes} the effective batch is {batch}; another number of them changes it.",) if batch else ()),
        *arguments.notes,
        *(f"NOT in here: {sentence}" for sentence in arguments.left_out),
    )
    return tuple(map(one_line, lines))


KINDS: Mapping[str, Kind] = {
    **{kind: Kind(partial(config_text, kind=kind), kind, is_config=True) for kind in ("yaml", "toml", "json")},
    "env": Kind(_environment, "env"),
    "keras-env": Kind(_keras_environment, "env"),
    **{name: Kind(partial(_for_framework, name), "json" if name == "deepspeed" else "yaml") for name in FRAMEWORKS},
}
"""Forms by the name in `autotune export --to`."""
