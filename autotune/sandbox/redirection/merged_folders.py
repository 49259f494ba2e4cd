"""Content of a folder merged from several layers, for a trial with redirected writes. Standard library only."""

# pathlib would be loaded into processes without need for pathlib.
# ruff: noqa: PTH118
from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from os.path import join, normpath
from typing import Any

from autotune.sandbox.redirection import path_calls
from autotune.sandbox.redirection.real_places import error


class Entry:
    """An entry as os.scandir gives."""

    __slots__ = ("_whole", "name", "path")

    def __init__(self, name: Any, path: Any, whole: str) -> None:
        self.name, self.path, self._whole = name, path, whole

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a folder."""
        return self._is(stat.S_IFDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether the entry is a plain file."""
        return self._is(stat.S_IFREG, follow_symlinks)

    def is_symlink(self) -> bool:
        """Whether it is a link."""
        return self._is(stat.S_IFLNK, False)

    def is_junction(self) -> bool:
        """Never: junctions are of another system."""
        return False

    def inode(self) -> int:
        """Its inode number."""
        return int(self.stat(follow_symlinks=False).st_ino)

    def stat(self, *, follow_symlinks: bool = True) -> Any:
        """Its status."""
        return path_calls.os_stat(self._whole, follow_symlinks=follow_symlinks)

    def _is(self, kind: int, follow_symlinks: bool) -> bool:
        try:
            return stat.S_IFMT(self.stat(follow_symlinks=follow_symlinks).st_mode) == kind
        except FileNotFoundError:
            return False


class Entries:
    """What os.scandir gives."""

    def __init__(self, entries: list[Entry]) -> None:
        self._entries: Iterator[Entry] = iter(entries)

    def __iter__(self) -> Entries:
        return self

    def __next__(self) -> Entry:
        return next(self._entries)

    def __enter__(self) -> Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the iteration."""
        self._entries = iter(())


def os_listdir(path: Any = None) -> list[Any]:
    """os.listdir."""
    real, path, _ = _folder(path)
    if real is None:
        return list(path_calls.original["listdir"](path))
    names = path_calls.layers.names(real)
    return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names


def os_scandir(path: Any = None) -> Any:
    """os.scandir."""
    real, path, is_plain = _folder(path)
    if real is None or is_plain:
        return path_calls.original["scandir"](path)
    given = "." if path is None else "" if isinstance(path, int) else os.fspath(path)
    entries = []
    for name in path_calls.layers.names(real):
        shown: Any = os.fsencode(name) if isinstance(given, bytes) else name
        entries.append(Entry(shown, join(given, shown), join(real, name)))
    return Entries(entries)


def _folder(path: Any) -> tuple[str | None, Any, bool]:
    """The real path of a covered folder, the original's argument, and whether both see the same content."""
    layers = path_calls.layers
    text = layers.folder_of(path) if isinstance(path, int) else "." if path is None else path
    found, text, _ = path_calls.looked_up(text)
    if found is None:
        return None, path if path is None or isinstance(path, int) else text, True
    if not path_calls.is_folder(path_calls.there(found, path)):
        raise error(errno.ENOTDIR, path)
    named = normpath(join(path_calls.original["getcwd"](), os.fsdecode(text)))
    return found.real, path, named == found.real and layers.is_user_folder(found.real)
