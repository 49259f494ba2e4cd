"""Writes a tuned config to the user's path alone, after a check before the search."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from autotune.emit import formats
from autotune.emit.tuned_config import TunedConfig, config_text, read_config
from autotune.errors import ConfigError


def check_overwrite(path: str | os.PathLike[str], *, script: str, digest: str, force: bool) -> None:
    """Checks, before any time is spent, that a tuned config of the script may be written to the path.

    Args:
        path: Future path of the config.
        script: Path of the script as typed by the user.
        digest: SHA-256 of the script; empty without a file.
        force: Whether any regular file may be replaced.

    Raises:
        ConfigError: The suffix is unknown, the path holds anything but a tuned config of this script, or no file can be
            made in the folder.
    """
    file = Path(path)
    formats.kind_of(file)
    try:
        is_file: bool | None = stat.S_ISREG(file.stat().st_mode)
    except FileNotFoundError:
        is_file = None
    except OSError as error:  # a circle of links, a file in the place of a folder, a folder of somebody else
        raise ConfigError(f"{file} cannot be reached: {error.strerror}.", "Use another --out.") from error
    _check_folder(file)
    if is_file is None or (force and is_file):
        return
    hint = "Use another --out, or --force to replace it." if is_file else "Use another --out."
    try:
        there = read_config(file).script
    except ConfigError as error:
        raise ConfigError(f"{file} is already there, and autotune did not write it.", hint) from error
    if there.path != script and (not digest or there.digest != digest):
        raise ConfigError(f"{file} is already there, and is the tuned config of {there.path}, not of {script}.", hint)


def _check_folder(file: Path) -> None:
    """Checks the right to make files in the nearest existing folder above the path.

    Raises:
        ConfigError: The right is missing.
    """
    folder = next(parent for parent in Path(os.path.realpath(file)).parents if parent.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{file} cannot be written: nothing can be made in {folder}.", "Use another --out.")


def write_config(path: str | os.PathLike[str], config: TunedConfig, *, force: bool) -> None:
    """Writes the tuned config in the format of the path's suffix, to a temporary file beside the path, then renames.

    Missing folders are made. A symbolic link is followed.

    Raises:
        ConfigError: `check_overwrite` refuses the path, or the file cannot be written.
    """
    check_overwrite(path, script=config.script.path, digest=config.script.digest, force=force)
    content = config_text(config, formats.kind_of(Path(path))).encode("utf-8")
    target = Path(path).resolve()
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.", "Choose another place with --out.") from error
