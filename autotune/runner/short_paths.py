"""A short name for a trial's folder: the path of a socket may have 107 characters, and schedulers give long TMPDIRs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from autotune.runner.claims import is_ours

MAX_BYTES = 60
"""Longest folder that sockets can be made in: Python's loader workers add 32 bytes to its path, torch's 34, and a job's
own programs have some left."""
PLACES = (os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp", "/var/tmp")
"""Where links may lie, in the order in which they are tried."""


def short_path(folder: Path, places: Sequence[str] = PLACES) -> Path:
    """A path of this folder that is short enough for sockets in it: its own, or that of a link to it.

    Args:
        folder: The folder, which is there.
        places: Folders that links may lie in, in folders of this user's alone.

    Returns:
        The folder's own path, too, where no link can be made.
    """
    if len(os.fsencode(folder)) <= MAX_BYTES:
        return folder
    for place in filter(None, places):
        link = Path(place, f"autotune-{os.getuid()}", _name(folder))
        if len(os.fsencode(link)) > MAX_BYTES:
            continue
        with suppress(OSError):
            link.parent.mkdir(mode=0o700, exist_ok=True)
            if not is_ours(link.parent):
                continue
            if not link.is_symlink():
                link.symlink_to(folder)
            if link.resolve() == folder.resolve():
                return link
    return folder


def remove_short_path(folder: Path, places: Sequence[str] = PLACES) -> None:
    """Removes the link to a folder, if there is one."""
    for place in filter(None, places):
        with suppress(OSError):
            link = Path(place, f"autotune-{os.getuid()}", _name(folder))
            if link.is_symlink() and is_ours(link.parent):
                link.unlink()


def remove_dead_links(places: Sequence[str] = PLACES) -> None:
    """Removes links of this user's to folders that are gone, as tuners that were killed leave them."""
    for place in filter(None, places):
        base = Path(place, f"autotune-{os.getuid()}")
        with suppress(OSError):
            for link in base.iterdir() if is_ours(base) else ():
                if link.is_symlink() and not link.exists():
                    link.unlink()


def _name(folder: Path) -> str:
    return hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]
