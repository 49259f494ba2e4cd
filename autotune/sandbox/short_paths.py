"""A short name for a trial's folder: the path of a socket may have 107 characters, and schedulers give long TMPDIRs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from autotune.sandbox.locks import is_ours

MAX_BYTES = 60
"""Longest path of a folder for sockets: Python's loader workers add 32 bytes, torch 34, and programs of a job need room
too."""
PLACES = (os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp", "/var/tmp")
"""Folders for links, in order of trial."""


def short_path(folder: Path, places: Sequence[str] = PLACES) -> Path:
    """A path of this folder with room for the names of sockets: the folder's own path, or the path of a link.

    Args:
        folder: An existing folder.
        places: Folders for links; each link lies in a subfolder of this user's alone.

    Returns:
        The folder's own path where no link can be made.
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
    """Removes the link to a folder, if any."""
    for place in filter(None, places):
        with suppress(OSError):
            link = Path(place, f"autotune-{os.getuid()}", _name(folder))
            if link.is_symlink() and is_ours(link.parent):
                link.unlink()


def remove_dead_links(places: Sequence[str] = PLACES) -> None:
    """Removes this user's links to missing folders; killed tuners leave such links."""
    for place in filter(None, places):
        base = Path(place, f"autotune-{os.getuid()}")
        with suppress(OSError):
            for link in base.iterdir() if is_ours(base) else ():
                if link.is_symlink() and not link.exists():
                    link.unlink()


def _name(folder: Path) -> str:
    return hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]
