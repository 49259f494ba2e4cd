"""A layer with copies of other users' folders and files, for an ordinary user's scripts to write to.

The kernel copies no file of another user or group into the layer of an ordinary user. So a script could not write to a
colleague's folder, or to a folder with a group of its own for new files. Copies owned by the user lie between the
script's layer and the system's folders.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from autotune.sandbox.layer_folders import UPPER, layer_name

MAX_ENTRIES = 20_000
"""Most entries to examine; further entries are read-only."""
MAX_FILE_BYTES = 64 << 20
MAX_BYTES = 1 << 30
"""Of all copies together."""
UNREACHED = os.strerror(errno.EOVERFLOW)
"""The kernel's message when a layer cannot copy a file of another user."""


def mend(layer: Path, folders: Iterable[Path], skipped: Path) -> tuple[Path, ...]:
    """Fills an empty layer with other users' writable files in folders; returns places without a copy.

    Such a place is too large to copy, or the first folder past the most entries: scripts cannot write there.

    Args:
        layer: The layer.
        folders: The user's; real paths.
        skipped: A folder of ours, possibly inside `folders`.
    """
    top = layer / layer_name("/") / UPPER
    copies = _Copies(top)
    for folder in folders:
        for place, names, files in os.walk(folder):
            if copies.is_full:
                copies.left_out.append(Path(place))
                break
            names[:] = [name for name in names if Path(place, name) != skipped]
            copies.add_folder(place)
            for name in files:
                copies.add_file(os.path.join(place, name))  # noqa: PTH118  called for every file
    return tuple(copies.left_out)


class _Copies:
    """Copies of files and folders, by path below a top folder."""

    def __init__(self, top: Path) -> None:
        self._top, self._ids = top, (os.geteuid(), os.getegid())
        self._num_left, self._bytes_left = MAX_ENTRIES, MAX_BYTES
        self.left_out: list[Path] = []

    @property
    def is_full(self) -> bool:
        return self._num_left <= 0

    def add_folder(self, path: str) -> None:
        self._num_left -= 1
        with suppress(OSError):
            status = os.stat(path)  # noqa: PTH116
            if (status.st_uid, status.st_gid) != self._ids and os.access(path, os.W_OK):
                self._place(path).mkdir(parents=True, exist_ok=True)
                self._place(path).chmod(status.st_mode & 0o777 | 0o700)

    def add_file(self, path: str) -> None:
        self._num_left -= 1
        with suppress(OSError):
            status = os.lstat(path)
            is_foreign = (status.st_uid, status.st_gid) != self._ids and os.access(path, os.W_OK)
            if not is_foreign or not stat.S_ISREG(status.st_mode):
                return
            if status.st_size > min(MAX_FILE_BYTES, self._bytes_left):
                self.left_out.append(Path(path))
                return
            self._bytes_left -= status.st_size
            place = self._place(path)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, place, follow_symlinks=False)

    def _place(self, path: str) -> Path:
        return self._top / path.lstrip("/")


def unreached_folders(printed: str, cwd: Path) -> tuple[Path, ...]:
    """Folders that a failed script could not write to because another user owns a folder or file there.

    Args:
        printed: Output of the script.
        cwd: The script's working directory.
    """
    if UNREACHED not in printed:
        return ()
    found = []
    for text in re.findall(r"['\"]([^'\"\n]+)['\"]", printed):
        path = Path(os.path.realpath(cwd / text))
        folder = next((place for place in (path, *path.parents) if place.is_dir()), None)
        if folder is not None and "/" in text:
            found.append(folder)
    return tuple(dict.fromkeys(found))
