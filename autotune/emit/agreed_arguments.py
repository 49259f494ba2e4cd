"""Finds the arguments that a tuned config adds to a script's command, and whether this user has agreed to them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from autotune.emit.tuned_config import TunedConfig
from autotune.errors import UsageError
from autotune.model.maps import mapped_arguments
from autotune.user_state import read_state, signed, write_state

_KIND = "configs"


def added_arguments(config: TunedConfig) -> tuple[str, ...]:
    """Arguments that `autotune run` adds to the typed arguments of the script; empty for most configs."""
    return mapped_arguments(config.settings, config.script.natural, config.script.maps.items())


def agree(path: Path, arguments: Sequence[str]) -> bool:
    """Notes this user's agreement to the added arguments of the config at the path; true when the note is written."""
    return write_state(_KIND, _place(path), {"arguments": signed(json.dumps(list(arguments)))})


def note_written(path: Path, config: TunedConfig) -> None:
    """Notes that a search of this user wrote the config at the path."""
    if arguments := added_arguments(config):
        agree(path, arguments)


def is_agreed(path: Path, config: TunedConfig) -> bool:
    """Whether the config adds no arguments, was written by this user's search, or has this user's agreement."""
    arguments = added_arguments(config)
    return not arguments or read_state(_KIND, _place(path)).get("arguments") == signed(json.dumps(list(arguments)))


def check_agreed(path: Path, config: TunedConfig, shown: str) -> None:
    """Refuses a config with added arguments, unless this user's search wrote it or the user agreed to the arguments.

    Args:
        path: The config's file.
        config: Content of the file.
        shown: The file as the user named it.

    Raises:
        UsageError: The user has not agreed; names the arguments and the command to type.
    """
    if not is_agreed(path, config):
        raise UsageError(
            f"{shown} was not written by a search of yours here, and adds arguments to the script: "
            f"{shlex.join(added_arguments(config))}.",
            f"To agree, type: {shlex.join(['autotune', 'trust', shown])}",
        )


def _place(path: Path) -> str:
    return str(path.resolve())
