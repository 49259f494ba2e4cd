"""What a tuned config adds to the command of a script, and whether this user has agreed to that."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from autotune.emit.config import TunedConfig
from autotune.errors import UsageError
from autotune.model.maps import mapped_arguments
from autotune.user_state import read_state, signed, write_state

_KIND = "configs"


def added_arguments(config: TunedConfig) -> tuple[str, ...]:
    """Arguments that `autotune run` gives the script beside those that are typed; empty for most configs."""
    return mapped_arguments(config.settings, config.script.natural, config.script.maps.items())


def agree(path: Path, arguments: Sequence[str]) -> bool:
    """Whether it could be noted that this user lets the config at that path add these arguments."""
    return write_state(_KIND, _place(path), {"arguments": signed(json.dumps(list(arguments)))})


def note_written(path: Path, config: TunedConfig) -> None:
    """Notes that this user's own search wrote the config there."""
    if arguments := added_arguments(config):
        agree(path, arguments)


def is_agreed(path: Path, config: TunedConfig) -> bool:
    """Whether the config adds no arguments, or this user's search wrote it there, or he agreed to what it adds."""
    arguments = added_arguments(config)
    return not arguments or read_state(_KIND, _place(path)).get("arguments") == signed(json.dumps(list(arguments)))


def check_agreed(path: Path, config: TunedConfig, shown: str) -> None:
    """Refuses a config that adds arguments to a script, unless this user's search wrote it or he agreed to it.

    Args:
        path: The config's file.
        config: Its content.
        shown: The file as the user named it.

    Raises:
        UsageError: He has not; says what is added, and what to type.
    """
    if not is_agreed(path, config):
        raise UsageError(
            f"{shown} was not written by a search of yours here, and adds arguments to the script: "
            f"{shlex.join(added_arguments(config))}.",
            f"If that is what you want, type: {shlex.join(['autotune', 'trust', shown])}",
        )


def _place(path: Path) -> str:
    return str(path.resolve())
