"""The token of a server: made when missing, kept in a file of mode 600."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from autotune.errors import UsageError
from autotune.user_state import state_folder

NUM_BYTES = 32


def default_token_file() -> Path:
    """The file `service.token` in the user's state folder, so that server, worker and client of a user agree.

    Raises:
        UsageError: The user has no home.
    """
    folder = state_folder()
    if folder is None:
        raise UsageError("There is no home folder for the token.", "Name a file: --token-file PATH")
    return folder / "service.token"


def open_token(path: Path) -> str:
    """The token in the file; a missing file is made, with mode 600.

    Raises:
        UsageError: The file cannot be read or made, is empty, or other users may read the file.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read_token(path)
    except OSError as error:
        raise UsageError(f"The token file {path} cannot be made: {error.strerror}.", "Name another one.") from error
    token = secrets.token_urlsafe(NUM_BYTES)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{token}\n")
    return token


def read_token(path: Path) -> str:
    """The token in an existing file.

    Raises:
        UsageError: The file cannot be read, is empty, or other users may read the file.
    """
    try:
        with path.open() as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            token = file.read(4096).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The token file {path} cannot be read: {error}.", "Copy it from the server.") from error
    if mode & 0o077:
        raise UsageError(f"Other users may read the token file {path}.", f"Type: chmod 600 {path}")
    if not token:
        raise UsageError(f"The token file {path} is empty.", "Copy it from the server.")
    return token
