"""A tuned config in the form that other programs take. Each kind is one function from the config to text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping

from autotune.emit.config import TunedConfig, config_text
from autotune.errors import ConfigError, UsageError
from autotune.settings import OmpWaitPolicy


def export(config: TunedConfig, kind: str) -> str:
    """The config as text of one of `KINDS`, ending in a newline.

    Raises:
        UsageError: The kind is unknown.
        ConfigError: The config cannot be said in this form.
    """
    if kind not in KINDS:
        raise UsageError(f"{kind!r} is not a form of a tuned config.", f"It is one of {', '.join(KINDS)}.")
    return KINDS[kind](config)


def _environment(config: TunedConfig) -> str:
    """Assignments for a shell, one per line: what libraries read when they start, then every setting.

    `set -a; . FILE` or `env $(autotune export ...)` use it.
    """
    settings = config.settings
    variables = {
        "OMP_NUM_THREADS": str(settings.intra_op_threads),
        "MKL_NUM_THREADS": str(settings.intra_op_threads),
    }
    if settings.omp_wait_policy is OmpWaitPolicy.PASSIVE:
        variables["OMP_WAIT_POLICY"] = "PASSIVE"
    if settings.expandable_segments:
        variables["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    for name, value in settings.to_dict().items():
        if name != "knobs" and value is not None:
            variables[f"AUTOTUNE_{name.upper()}"] = str(value).lower() if isinstance(value, bool) else str(value)
    for name, value in settings.knobs:
        # Apart from the settings and from the options of the command line, which have AUTOTUNE_STORAGE and others.
        variable = "AUTOTUNE_KNOB_" + re.sub(r"[^A-Za-z0-9]", "_", name).upper()
        if variable in variables:
            raise ConfigError(f"Two knobs would both be {variable}.", "Give one another name.")
        variables[variable] = value
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())


KINDS: Mapping[str, Callable[[TunedConfig], str]] = {
    "yaml": lambda config: config_text(config, "yaml"),
    "toml": lambda config: config_text(config, "toml"),
    "json": lambda config: config_text(config, "json"),
    "env": _environment,
}
"""By the name that `autotune export --to` takes."""
