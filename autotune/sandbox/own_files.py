"""The tuner's writes into folders of living scripts: a link of a script leads nowhere."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from autotune.sandbox.tree_removal import FOLDER


def put(path: Path, text: str, *, below: Path) -> None:
    """Writes a file in one step, over whatever has the name; makes the missing folders on the way.

    Args:
        path: The file.
        text: The content; a path may have bytes that are no text.
        below: An existing folder above the file, out of the scripts' reach.

    Raises:
        OSError: The way from `below` to the file leads over a link or a file, or the disk is full.
    """
    *folders, name = path.relative_to(below).parts
    folder = os.open(below, FOLDER & ~os.O_NOFOLLOW)
    try:
        for inner in folders:
            with suppress(FileExistsError):
                os.mkdir(inner, 0o700, dir_fd=folder)
            above, folder = folder, os.open(inner, FOLDER, dir_fd=folder)
            os.close(above)
        aside = f"{name}-{uuid.uuid4().hex}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(aside, flags, 0o600, dir_fd=folder), "wb") as file:
            file.write(os.fsencode(text))
        os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)


def remove_links(places: Iterable[Path]) -> None:
    """Removes the links among places of ours, each above the next; no script may be running."""
    for place in places:
        if place.is_symlink():
            place.unlink()
