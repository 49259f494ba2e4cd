"""Places of the script's paths when writes are redirected: in a layer of ours, or in the user's folder.

Standard library only: the module runs in every Python process of a trial, before the script. A layer holds `files`,
with covered paths under their own names, and `gone`, with an empty file as the mark of a removed path. A mark hides the
path, and all paths below, in lower layers. The user's own files are the lowest layer.
"""

# pathlib would be loaded into processes without need for pathlib.
# ruff: noqa: PTH118, PTH120
from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from os.path import dirname, join
from typing import NamedTuple

from autotune.sandbox.redirection import real_places
from autotune.sandbox.redirection.real_places import (
    FOLDER,
    HIDDEN,
    NOTHING,
    OTHER,
    error,
    exists,
    is_folder,
    is_link,
    kind_of,
)

FILES, GONE = "files", "gone"
"""Folders of a layer."""
MAX_LINKS = 40
MAX_FOLDERS_KNOWN = 4096


class Found(NamedTuple):
    """What a path means."""

    real: str
    """The path as the script sees it, absolute and without links."""
    place: str | None
    """The place of `real`; None if the script sees no entry."""
    is_covered: bool
    """False for a path out of a covered folder by links, which may exist in a layer alone."""


class RedirectLayers:
    """The covered folders with their layers.

    Args:
        covered: Folders whose files must not change; real paths.
        layers: Folders of the layers, nearest first; writes go to the first.
        spared: Folders and files without redirection within covered folders; real paths.
    """

    def __init__(self, covered: Sequence[str], layers: Sequence[str], spared: Sequence[str] = ()) -> None:
        self._covered = tuple(covered)
        self._below = tuple(folder + "/" for folder in covered)
        self._spared = tuple(spared)
        self._below_spared = tuple(path + "/" for path in spared)
        self._files = tuple(join(layer, FILES) for layer in layers)
        self._gone = tuple(join(layer, GONE) for layer in layers)
        self._aside = join(layers[0], "aside") if layers else ""
        self._stamp = join(layers[0], "stamp") if layers else ""
        self._stamp_size = 0
        self._untouched: set[str] = set()
        self._folders: dict[str, str] = {}

    # From a name to the real path ------------------------------------------------------------------------------

    def look(self, path: str, *, follows: bool = True, dir_fd: int | None = None) -> Found | None:
        """The meaning of a path of the script.

        Args:
            path: Absolute, or relative to the working directory or to the open folder.
            follows: Whether to follow a link at the end of the path; earlier links are always followed.
            dir_fd: The open folder.

        Returns:
            None for a path without a covered folder.

        Raises:
            OSError: Links lead in a circle, or `..` follows a file.
        """
        if not path.startswith("/"):
            path = f"{self.cwd() if dir_fd is None else self.folder_of(dir_fd)}/{path}"
        head, _, tail = path.rpartition("/")
        if tail in ("", ".", ".."):
            return self._found(self._resolve(path), path)
        folder = self._folder(head or "/")
        real = f"{folder}/{tail}" if folder != "/" else f"/{tail}"
        if not self.is_covered(real) or self._is_untouched(folder):
            mode = real_places.mode_of(real)
            if follows and mode is not None and stat.S_ISLNK(mode):
                return self._found(self._resolve(real), path)
            if self.is_covered(real):
                return Found(real, real if mode is not None else None, True)
            return Found(real, real, False) if path.startswith(self._below) else None
        place = self.place(real)
        if follows and place is not None and is_link(place):
            return self._found(self._resolve(real), path)
        return Found(real, place, True)

    def _found(self, real: str, path: str) -> Found | None:
        if self.is_covered(real):
            return Found(real, self.place(real), True)
        return Found(real, real, False) if path.startswith(self._below) else None

    def _is_untouched(self, folder: str) -> bool:
        """Whether no layer has changes in a folder; remembered until the next change of a layer.

        Each read of a file in a known folder costs a look at the stamp, instead of a look at every layer.
        """
        size = real_places.size_of(self._stamp)
        if size != self._stamp_size:
            self._untouched.clear()
            self._stamp_size = size
        if folder in self._untouched:
            return True
        in_layers = (*(files + folder for files in self._files), *(gone + folder for gone in self._gone))
        is_untouched = all(kind_of(place) == NOTHING for place in in_layers)
        if is_untouched and len(self._untouched) < MAX_FOLDERS_KNOWN:
            self._untouched.add(folder)
        return is_untouched

    def _folder(self, path: str) -> str:
        """The real path of a folder; remembered, because scripts open many files in few folders."""
        folder = self._folders.get(path)
        if folder is None:
            folder = self._resolve(path)
            if "/.." in path:
                return folder  # A folder before `..` may become a file.
            if len(self._folders) >= MAX_FOLDERS_KNOWN:
                self._folders.clear()
            self._folders[path] = folder
        return folder

    def prepare(self) -> None:
        """Makes the folders of the first layer."""
        for folder in (self._files[0], self._gone[0], self._aside):
            real_places.make_folders(folder)
        real_places.make_longer(self._stamp)

    def changed(self) -> None:
        """Makes every process forget known folders, after a change of a layer's folders, links or marks."""
        self._folders.clear()
        real_places.make_longer(self._stamp)

    def is_covered(self, real: str) -> bool:
        """Whether the path is a covered folder, or lies inside, and is not spared."""
        if real.startswith(self._below_spared) or real in self._spared:
            return False
        return real.startswith(self._below) or real in self._covered

    def cwd(self) -> str:
        """The working directory as the script sees it; the folder may exist in a layer alone."""
        return self.seen_as(real_places.getcwd())

    def folder_of(self, descriptor: int) -> str:
        """The path of an open folder, as the script sees it."""
        return self.seen_as(real_places.readlink(f"/proc/self/fd/{descriptor}"))

    def seen_as(self, place: str) -> str:
        """The path under which the script knows a place in a layer."""
        for files in self._files:
            if place.startswith(files + "/"):
                return place[len(files) :]
        return place

    def _resolve(self, path: str) -> str:
        pending = path.split("/")[::-1]
        real, num_links = "/", 0
        while pending:
            part = pending.pop()
            if part == "..":
                self.must_be_folder(real, path)
                real = dirname(real)
            elif part not in ("", "."):
                candidate = join(real, part)
                place = self.place(candidate)
                target = real_places.link_target(place) if place is not None else None
                if target is None:
                    real = candidate
                    continue
                num_links += 1
                if num_links > MAX_LINKS:
                    raise error(errno.ELOOP, path)
                real = "/" if target.startswith("/") else real
                pending.extend(target.split("/")[::-1])
        return real

    def must_be_folder(self, real: str, path: str) -> None:
        """Raises the system's error for a path through a missing folder or a file."""
        place = self.place(real)
        if place is None:
            raise error(self.why_missing(real), path)
        if not is_folder(place):
            raise error(errno.ENOTDIR, path)

    # From the real path to the place ----------------------------------------------------------------------------

    def place(self, real: str) -> str | None:
        """The place of a file, folder or link; None if the script sees no entry. Links are not followed."""
        if not self.is_covered(real):
            return real if exists(real) else None
        for files, gone in zip(self._files, self._gone, strict=True):
            kind = kind_of(files + real)
            if kind in (FOLDER, OTHER):
                return files + real
            if kind == HIDDEN or real_places.is_marked(gone + real):
                return None
        return real if exists(real) else None

    def why_missing(self, real: str) -> int:
        """The error number for a missing path: ENOTDIR if a parent is a file, otherwise ENOENT."""
        place = None
        while place is None:
            real = dirname(real)
            place = self.place(real)
        return errno.ENOENT if is_folder(place) else errno.ENOTDIR

    def folder_places(self, real: str) -> list[str]:
        """The places merged into a folder, nearest first; empty for a path without a folder."""
        found = []
        for files, gone in zip(self._files, self._gone, strict=True):
            kind = kind_of(files + real)
            if kind == FOLDER:
                found.append(files + real)
            if kind in (OTHER, HIDDEN) or real_places.is_marked(gone + real):
                return found
        return [*found, real] if is_folder(real) else found

    def names(self, real: str) -> list[str]:
        """The names in a folder, of all layers together."""
        names = {name: None for place in self.folder_places(real) for name in real_places.listdir(place)}
        return [name for name in names if self.place(join(real, name)) is not None]

    def is_user_folder(self, real: str) -> bool:
        """Whether no layer has a place or a mark for a folder."""
        return self.folder_places(real) == [real] and not any(exists(gone + real) for gone in self._gone)

    # Writing ----------------------------------------------------------------------------------------------------

    def new_place(self, real: str) -> str:
        """The place for a new file or folder; makes the parent in the layer.

        Raises:
            OSError: The parent is no folder, or refuses new entries.
        """
        parent = dirname(real)
        self.must_be_folder(parent, real)
        place = self.place(parent) or parent
        if not real_places.access(place, os.W_OK | os.X_OK):
            raise error(errno.EACCES, real)
        if real_places.make_folders(self._files[0] + parent):
            self.changed()
        return self._files[0] + real

    def own_place(self, real: str, *, keeps_content: bool = True) -> str:
        """The place of an existing entry in the first layer; copies the entry if needed.

        Args:
            real: Its real path.
            keeps_content: Whether a copied file keeps the content, instead of starting empty.

        Raises:
            OSError: The entry does not exist, or cannot be read.
        """
        place = self.place(real)
        if place is None:
            raise error(self.why_missing(real), real)
        own = self._files[0] + real
        if place != own:
            has_made = real_places.make_folders(self._files[0] + dirname(real))
            real_places.copy(place, own, aside=self._aside, keeps_content=keeps_content)
            if has_made or is_folder(own):
                self.changed()
        return own

    def own_tree(self, real: str) -> str:
        """The place of an existing entry in the first layer; copies the entry with all content if needed."""
        own = self.own_place(real)
        if is_folder(own):
            for name in self.names(real):
                self.own_tree(join(real, name))
        return own

    def remove(self, real: str) -> None:
        """Takes a file, a link or an empty folder out of sight.

        Raises:
            OSError: The folder of the entry refuses changes.
        """
        parent = self.place(dirname(real))
        if parent is not None and not real_places.access(parent, os.W_OK | os.X_OK):
            raise error(errno.EACCES, real)
        own = self._files[0] + real
        if exists(own):
            real_places.remove(own)
        if self.place(real) is not None:
            self._mark(self._gone[0] + real)
        self.changed()

    def _mark(self, marker: str) -> None:
        """Marks a path as gone. The mark replaces marks below."""
        if is_folder(marker):
            real_places.remove_tree(marker)
        real_places.make_folders(dirname(marker))
        real_places.make_empty(marker)
