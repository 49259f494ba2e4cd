"""Writing a tuned config where the user wants it, and nowhere else; whether that can be done is known beforehand."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from autotune.emit import formats
from autotune.emit.tuned_config import TunedConfig, config_text, read_config
from autotune.errors import ConfigError


def check_overwrite(path: str | os.PathLike[str], *, script: str, digest: str, force: bool) -> None:
    """Checks, before anything is spent, that a tuned config of this script may be written there.

    Args:
        path: Where the config is to go.
        script: Path of the script as the user wrote it.
        digest: SHA-256 of the script; empty where there is no file.
        force: Any regular file may be replaced.

    Raises:
        ConfigError: The suffix is unknown, the path is taken by what autotune did not write for this script, or no file
            can be made there.
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
    """Refuses a file that could not be made, by the nearest folder above it that is there.

    Raises:
        ConfigError: Nothing can be made in it.
    """
    folder = next(parent for parent in Path(os.path.realpath(file)).parents if parent.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{file} cannot be written: nothing can be made in {folder}.", "Use another --out.")


def write_config(path: str | os.PathLike[str], config: TunedConfig, *, force: bool) -> None:
    """Writes the tuned config in the format of the path's suffix: beside the file first, then renamed over it.

    Missing folders are made. A symbolic link is followed.

    Raises:
        ConfigError: As of `check_overwrite`, or the file cannot be written.
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
