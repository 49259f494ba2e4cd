"""Keeps small files in the user's own state folder, outside every project and unreadable for other users."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

MAX_BYTES = 1 << 20
"""Most bytes read of a state file; written files are far smaller."""
_KEY = "key"


def state_folder(environ: Mapping[str, str] | None = None) -> Path | None:
    """The folder `$XDG_STATE_HOME/autotune`, or `~/.local/state/autotune`; None when the user has no home.

    Args:
        environ: The environment; None = the environment of this process.
    """
    environ = os.environ if environ is None else environ
    named = environ.get("XDG_STATE_HOME", "")
    if Path(named).is_absolute():
        return Path(named, "autotune")
    home = environ.get("HOME") or os.path.expanduser("~")  # noqa: PTH111  pathlib raises without a home
    return Path(home, ".local", "state", "autotune") if Path(home).is_absolute() else None


def signed(text: str) -> str | None:
    """A digest of the text that only this user can make, in hexadecimal; None without a usable key of the user."""
    key = _user_key()
    return None if key is None else hmac.new(key, text.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()


def read_state(kind: str, name: str) -> dict[str, Any]:
    """Values written under the kind and name; empty when nothing was written, or the file cannot be read."""
    path = _place(kind, name)
    if path is None:
        return {}
    try:
        values = json.loads(_read_private(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def write_state(kind: str, name: str, values: Mapping[str, Any]) -> bool:
    """Writes the values under the kind and name, readable by this user alone; true when the file is written."""
    path = _place(kind, name)
    if path is None:
        return False
    try:
        _make_private(path.parent)
        _replace(path, json.dumps(dict(values)).encode())
    except OSError:
        return False
    return True


def _place(kind: str, name: str) -> Path | None:
    """The file for a kind and a name of any characters, called by a digest with the user's key; None without a key."""
    folder, digest = state_folder(), signed(f"{kind} {name}")
    return None if folder is None or digest is None else folder / kind / f"{digest[:32]}.json"


def _user_key() -> bytes | None:
    """The user's own key, made at the first use; None when the key can be neither read nor made."""
    folder = state_folder()
    if folder is None:
        return None
    path = folder / _KEY
    try:
        return _read_private(path)
    except FileNotFoundError:
        pass
    except OSError:
        return None
    try:
        _make_private(folder)
        fresh = _written_beside(path, secrets.token_hex(32).encode())
        with suppress(FileExistsError):  # another process was faster
            os.link(fresh, path)
        fresh.unlink()
        return _read_private(path)
    except OSError:
        return None


def _read_private(path: Path) -> bytes:
    """The first `MAX_BYTES` of a file that belongs to this user alone.

    Raises:
        OSError: The file cannot be read, or another user may have written to the file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise PermissionError(f"{path} can be written by other users")
        return stream.read(MAX_BYTES)


def _make_private(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def _replace(path: Path, content: bytes) -> None:
    _written_beside(path, content).replace(path)


def _written_beside(path: Path, content: bytes) -> Path:
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
    return fresh
