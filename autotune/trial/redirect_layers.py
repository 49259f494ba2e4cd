"""Where a path of the script's really is, when writes are redirected: in a layer of ours, or where the user has it.

Standard library only: it runs in every Python process of a trial, before the script. A layer holds `files`, in which
a covered path is found under its own name, and `gone`, in which an empty file marks what was removed or replaced: it
hides the same path, and all below it, in the layers underneath. The user's own files are the lowest layer.
"""

# pathlib would be loaded into processes that do without.
# ruff: noqa: PTH118, PTH120
from __future__ import annotations

import errno
import os
import posix
import stat
from collections.abc import Sequence
from os.path import dirname, join, split

# Taken before they are replaced: what follows looks at the places themselves.
_close, _open, _read, _write = posix.close, posix.open, posix.read, posix.write
_getcwd, _listdir, _lstat, _readlink = posix.getcwd, posix.listdir, posix.lstat, posix.readlink
_access, _chmod, _mkdir, _rename = posix.access, posix.chmod, posix.mkdir, posix.rename
_rmdir, _symlink, _unlink, _utime = posix.rmdir, posix.symlink, posix.unlink, posix.utime

MAX_LINKS = 40
MAX_FOLDERS_KNOWN = 4096
COPY_BYTES = 1 << 20


class RedirectLayers:
    """The covered folders with the layers over them.

    Args:
        covered: Folders whose files must not change; real paths.
        layers: Folders of the layers, nearest first; the first one is written to.
    """

    def __init__(self, covered: Sequence[str], layers: Sequence[str]) -> None:
        self._covered = tuple(covered)
        self._below = tuple(folder + "/" for folder in covered)
        self._files = tuple(join(layer, "files") for layer in layers)
        self._gone = tuple(join(layer, "gone") for layer in layers)
        self._folders: dict[str, str] = {}

    # From a name to the real path ------------------------------------------------------------------------------

    def look(self, path: str, *, follows: bool = True, dir_fd: int | None = None) -> tuple[str, str | None] | None:
        """What a path of the script's means: its real path, as the script sees it, and its place.

        Args:
            path: Absolute, or relative to the working directory or to the open folder.
            follows: Whether a link at its end stands for what it leads to; links before its end always do.
            dir_fd: The open folder.

        Returns:
            The real path, absolute and without links, and the place, None where the script is to see none; None as a
            whole where the path is not covered.

        Raises:
            OSError: Links lead in a circle.
        """
        if not path.startswith("/"):
            path = join(self.cwd() if dir_fd is None else self.folder_of(dir_fd), path)
        head, tail = split(path)
        real = self._resolve(path) if tail in ("", ".", "..") else join(self._folder(head), tail)
        if not self.is_covered(real):
            if not follows or not _is_link(real):
                return None
            real = self._resolve(real)
            return (real, self.place(real)) if self.is_covered(real) else None
        place = self.place(real)
        if follows and place is not None and _is_link(place):
            real = self._resolve(real)
            return (real, self.place(real)) if self.is_covered(real) else None
        return real, place

    def _folder(self, path: str) -> str:
        """The real path of a folder; remembered, because scripts open many files in few folders."""
        folder = self._folders.get(path)
        if folder is None:
            folder = self._resolve(path)
            if len(self._folders) >= MAX_FOLDERS_KNOWN:
                self._folders.clear()
            self._folders[path] = folder
        return folder

    def prepare(self) -> None:
        """Makes the folders of the layer that is written to."""
        make_folders(self._files[0])
        make_folders(self._gone[0])

    def forget(self) -> None:
        """To be called when a name may have come to mean another folder."""
        self._folders.clear()

    def is_covered(self, real: str) -> bool:
        """Whether the path lies in a covered folder, or is one."""
        return real.startswith(self._below) or real in self._covered

    def cwd(self) -> str:
        """The working directory as the script sees it: it may be one that only a layer has."""
        return self.seen_as(_getcwd())

    def folder_of(self, descriptor: int) -> str:
        """The path of an open folder, as the script sees it."""
        return self.seen_as(_readlink(f"/proc/self/fd/{descriptor}"))

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
                real = dirname(real)
            elif part not in ("", "."):
                candidate = join(real, part)
                place = self.place(candidate)
                target = _link_target(place) if place is not None else None
                if target is None:
                    real = candidate
                    continue
                num_links += 1
                if num_links > MAX_LINKS:
                    raise error(errno.ELOOP, path)
                real = "/" if target.startswith("/") else real
                pending.extend(target.split("/")[::-1])
        return real

    # From the real path to the place ----------------------------------------------------------------------------

    def place(self, real: str) -> str | None:
        """Where the file, folder or link is; None where the script is to see none. Links are not followed."""
        if not self.is_covered(real):
            return real if _exists(real) else None
        for files, gone in zip(self._files, self._gone, strict=True):
            if _exists(files + real):
                return files + real
            if _is_marked(gone + real):
                return None
        return real if _exists(real) else None

    def folder_places(self, real: str) -> list[str]:
        """The places that together make up a folder, nearest first; empty where it is none."""
        places = []
        for files, gone in zip(self._files, self._gone, strict=True):
            if _is_folder(files + real):
                places.append(files + real)
            elif _exists(files + real):
                return places
            if _is_marked(gone + real):
                return places
        return [*places, real] if _is_folder(real) else places

    def names(self, real: str) -> list[str]:
        """The names in a folder, those of all layers together."""
        names = {name: None for place in self.folder_places(real) for name in _listdir(place)}
        return [name for name in names if self.place(join(real, name)) is not None]

    def is_user_folder(self, real: str) -> bool:
        """Whether a folder is just as the user has it."""
        return self.folder_places(real) == [real] and not any(_exists(gone + real) for gone in self._gone)

    # Writing ----------------------------------------------------------------------------------------------------

    def new_place(self, real: str) -> str:
        """Where a new file or folder is to be made: its parent is there then.

        Raises:
            OSError: The parent is none, or does not let us make one.
        """
        parent = dirname(real)
        place = self.place(parent)
        if place is None:
            raise error(errno.ENOENT, real)
        if not _is_folder(place):
            raise error(errno.ENOTDIR, real)
        if not _access(place, os.W_OK | os.X_OK):
            raise error(errno.EACCES, real)
        make_folders(self._files[0] + parent)
        return self._files[0] + real

    def own_place(self, real: str, *, keeps_content: bool = True) -> str:
        """The place of something that is there, in the layer that is written to: copied if need be.

        Args:
            real: Its real path.
            keeps_content: Otherwise a file comes without its content, which is about to be replaced.

        Raises:
            OSError: There is none, or it cannot be read.
        """
        place = self.place(real)
        if place is None:
            raise error(errno.ENOENT, real)
        own = self._files[0] + real
        if place != own:
            make_folders(self._files[0] + dirname(real))
            _copy(place, own, keeps_content=keeps_content)
        return own

    def own_tree(self, real: str) -> str:
        """The same, with everything below it."""
        own = self.own_place(real)
        if _is_folder(own):
            for name in self.names(real):
                self.own_tree(join(real, name))
        return own

    def remove(self, real: str) -> None:
        """Takes a file, a link or an empty folder out of sight.

        Raises:
            OSError: The folder that it is in does not let us.
        """
        parent = self.place(dirname(real))
        if parent is not None and not _access(parent, os.W_OK | os.X_OK):
            raise error(errno.EACCES, real)
        own = self._files[0] + real
        if _exists(own):
            (_rmdir if _is_folder(own) else _unlink)(own)
        if self.place(real) is not None:
            self._mark(self._gone[0] + real)

    def _mark(self, marker: str) -> None:
        """Marks a path as gone. Marks below it are swallowed: it hides all of that."""
        if _is_folder(marker):
            _remove_tree(marker)
        make_folders(dirname(marker))
        _close(_open(marker, os.O_WRONLY | os.O_CREAT, 0o600))


def make_folders(folder: str) -> None:
    """Makes a folder with those above it; another process of the trial may be faster."""
    missing = []
    while not _exists(folder):
        missing.append(folder)
        folder = dirname(folder)
    for path in reversed(missing):
        try:
            _mkdir(path)
        except FileExistsError:
            continue


def error(number: int, path: str) -> OSError:
    """The error that the system would raise."""
    return OSError(number, os.strerror(number), path)


def _exists(place: str) -> bool:
    try:
        _lstat(place)
    except (OSError, ValueError):
        return False
    return True


def _is_folder(place: str) -> bool:
    try:
        return stat.S_ISDIR(_lstat(place).st_mode)
    except OSError:
        return False


def _is_link(place: str) -> bool:
    try:
        return stat.S_ISLNK(_lstat(place).st_mode)
    except OSError:
        return False


def _link_target(place: str) -> str | None:
    try:
        return _readlink(place)
    except OSError:
        return None


def _is_marked(marker: str) -> bool:
    """Whether the mark is there, or one of a folder above it, which then is a file where a folder is looked for."""
    try:
        return stat.S_ISREG(_lstat(marker).st_mode)
    except NotADirectoryError:
        return True
    except OSError:
        return False


def _copy(place: str, own: str, *, keeps_content: bool) -> None:
    """Copies a file with its permissions and times, a link as it is, a folder without what is in it."""
    status = _lstat(place)
    if stat.S_ISLNK(status.st_mode):
        _symlink(_readlink(place), own)
        return
    if stat.S_ISDIR(status.st_mode):
        _mkdir(own)
    else:
        aside = f"{own}.{os.getpid()}.part"
        _copy_content(place if keeps_content else os.devnull, aside)
        _rename(aside, own)
    _chmod(own, stat.S_IMODE(status.st_mode) | stat.S_IRUSR | stat.S_IWUSR)
    _utime(own, ns=(status.st_atime_ns, status.st_mtime_ns))


def _copy_content(place: str, target: str) -> None:
    source = _open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sink = _open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            while data := _read(source, COPY_BYTES):
                while data:
                    data = data[_write(sink, data) :]
        finally:
            _close(sink)
    finally:
        _close(source)


def _remove_tree(folder: str) -> None:
    for name in _listdir(folder):
        place = join(folder, name)
        (_remove_tree if _is_folder(place) else _unlink)(place)
    _rmdir(folder)
