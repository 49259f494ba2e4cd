"""Removal of folders left by overlay mounts or scripts: closed, immutable, or thousands of levels deep.

Works by descriptors: no link is followed, even when a living process puts a link in place of a folder. Standard library
only.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
GET_FLAGS, SET_FLAGS = 0x80086601, 0x40086602
FIXED = 0x10 | 0x20
"""Flags of immutable files and of files open for appending alone; root may set both."""
MAX_DEPTH = 100
"""Levels of folders open at the same time."""


def remove_tree(folder: Path) -> None:
    """Removes a folder, or whatever a script put in place of the folder; a link is removed and not followed."""
    try:
        parent = os.open(folder.parent, FOLDER & ~os.O_NOFOLLOW)
    except OSError:
        return
    try:
        if not _is_unlinked(folder.name, parent):
            _remove_folder(folder.name, parent)
    finally:
        os.close(parent)


def _remove_folder(name: str, parent: int) -> None:
    with suppress(OSError), _opened(name, parent) as folder:
        aside = _Aside(folder)
        while _empty(folder, aside):
            pass
    with suppress(OSError):
        os.rmdir(name, dir_fd=parent)


class _Aside:
    """Moves folders from far below up to an open folder, so no path needs too many descriptors.

    Args:
        top: The open folder.
    """

    def __init__(self, top: int) -> None:
        self._top, self._mark = top, os.urandom(16).hex()
        self.num_moved = 0

    def take(self, name: str, source: int) -> None:
        """Moves a folder out of another open folder, if possible."""
        with suppress(OSError), _opened(name, source):  # A folder must be writable for a move.
            self.num_moved += 1
            os.rename(name, f"{self._mark}{self.num_moved}", src_dir_fd=source, dst_dir_fd=self._top)


def _empty(folder: int, aside: _Aside, depth: int = 0) -> bool:
    """Removes the entries of an open folder; whether folders were put aside."""
    num_before = aside.num_moved
    for name in os.listdir(folder):
        if _is_unlinked(name, folder):
            continue
        if depth == MAX_DEPTH:
            aside.take(name, folder)
            continue
        with suppress(OSError), _opened(name, folder) as inner:
            _empty(inner, aside, depth + 1)
        with suppress(OSError):
            os.rmdir(name, dir_fd=folder)
    return aside.num_moved > num_before


def _is_unlinked(name: str, folder: int) -> bool:
    """Whether an entry is gone: a file, link, pipe or socket is removed, and a folder stays."""
    for is_again in (False, True):
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            return True
        except IsADirectoryError:
            return False
        except OSError:
            if is_again:
                return False
            with suppress(OSError):
                _loosen(name, folder)
        else:
            return True
    return False


def _loosen(name: str, folder: int) -> None:
    """Makes a file in an open folder removable."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        _clear_flags(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _opened(name: str, parent: int) -> Iterator[int]:
    """A folder's descriptor, after this user got all rights over the folder.

    Raises:
        OSError: There is no such folder, or the folder belongs to another user.
    """
    try:
        folder = os.open(name, FOLDER, dir_fd=parent)
    except PermissionError:
        _make_readable(name, parent)
        folder = os.open(name, FOLDER, dir_fd=parent)
    try:
        _clear_flags(folder)
        with suppress(OSError):
            os.fchmod(folder, 0o700)
        yield folder
    finally:
        os.close(folder)


def _make_readable(name: str, parent: int) -> None:
    if not hasattr(os, "O_PATH"):
        os.chmod(name, 0o700, dir_fd=parent)
        return
    place = os.open(name, os.O_PATH | FOLDER, dir_fd=parent)
    try:
        Path(f"/proc/self/fd/{place}").chmod(0o700)
    finally:
        os.close(place)


def _clear_flags(descriptor: int) -> None:
    """Removes the flags of the file system against changes; does nothing without flags."""
    with suppress(OSError):
        flags = int.from_bytes(fcntl.ioctl(descriptor, GET_FLAGS, bytes(8)), "little")
        if flags & FIXED:
            fcntl.ioctl(descriptor, SET_FLAGS, (flags & ~FIXED).to_bytes(8, "little"))
