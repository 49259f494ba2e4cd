"""The system's own functions on files, folders and links, kept from before the redirection."""

# pathlib would be loaded into processes without need for pathlib.
# ruff: noqa: PTH118, PTH120
from __future__ import annotations

import errno
import os
import posix
import stat
from _thread import get_ident
from os.path import dirname, join

access, getcwd, listdir, lstat, readlink = posix.access, posix.getcwd, posix.listdir, posix.lstat, posix.readlink
_chmod, _link, _mkdir, _mkfifo, _symlink = posix.chmod, posix.link, posix.mkdir, posix.mkfifo, posix.symlink
_close, _open, _read, _write = posix.close, posix.open, posix.read, posix.write
_rmdir, _unlink, _utime = posix.rmdir, posix.unlink, posix.utime

FOLDER, OTHER, NOTHING = "folder", "other", "nothing"
HIDDEN = "hidden"
"""No entry, because a parent is a file; such a file hides the entry in lower layers."""
COPY_BYTES = 1 << 20
LARGE_BYTES = 4 << 30
"""A copy of more takes seconds on a fast disk."""
FICLONE = 0x40049409
"""Request for a copy with shared blocks."""


def make_folders(folder: str) -> bool:
    """Makes a folder with its parents; whether any was missing. Another process may be faster."""
    missing = []
    while not exists(folder):
        missing.append(folder)
        folder = dirname(folder)
    for path in reversed(missing):
        try:
            _mkdir(path)
        except FileExistsError:
            continue
    return bool(missing)


def error(number: int, path: str) -> OSError:
    """The system's error for a number and a path."""
    return OSError(number, os.strerror(number), path)


def mode_of(place: str) -> int | None:
    """The mode of a file, a folder or a link itself; None without an entry."""
    try:
        return lstat(place).st_mode
    except (OSError, ValueError):
        return None


def size_of(place: str) -> int:
    """The size of a file; -1 without a file."""
    try:
        return lstat(place).st_size
    except OSError:
        return -1


def kind_of(place: str) -> str:
    """FOLDER, OTHER, NOTHING or HIDDEN. Links are OTHER."""
    try:
        return FOLDER if stat.S_ISDIR(lstat(place).st_mode) else OTHER
    except NotADirectoryError:
        return HIDDEN
    except (OSError, ValueError):
        return NOTHING


def exists(place: str) -> bool:
    """Whether a path has an entry; a broken link counts."""
    return kind_of(place) in (FOLDER, OTHER)


def is_folder(place: str) -> bool:
    """Whether a path is a folder; a link to a folder does not count."""
    return kind_of(place) == FOLDER


def is_link(place: str) -> bool:
    """Whether a link is there."""
    try:
        return stat.S_ISLNK(lstat(place).st_mode)
    except OSError:
        return False


def link_target(place: str) -> str | None:
    """The text of a link; None without a link."""
    try:
        return readlink(place)
    except OSError:
        return None


def is_marked(marker: str) -> bool:
    """Whether a path, or a folder above the path, is marked as removed."""
    try:
        return stat.S_ISREG(lstat(marker).st_mode)
    except NotADirectoryError:
        return True
    except OSError:
        return False


def copy(place: str, own: str, *, aside: str, keeps_content: bool) -> None:
    """Copies a file with permissions and times, a link unchanged, or a folder without content.

    An entry made by another process of the trial in the meantime stays.

    Raises:
        OSError: The source cannot be read, or is a socket or a device.
    """
    status = lstat(place)
    try:
        if stat.S_ISLNK(status.st_mode):
            _symlink(readlink(place), own)
            return
        if stat.S_ISDIR(status.st_mode):
            _mkdir(own)
        elif stat.S_ISFIFO(status.st_mode):
            _mkfifo(own)
        elif stat.S_ISREG(status.st_mode):
            _copy_file(place if keeps_content else os.devnull, own, join(aside, f"{os.getpid()}-{get_ident()}"))
        else:
            raise error(errno.EPERM, place)
    except FileExistsError:
        return
    _chmod(own, stat.S_IMODE(status.st_mode) | stat.S_IRUSR | stat.S_IWUSR)
    _utime(own, ns=(status.st_atime_ns, status.st_mtime_ns))


def _copy_file(place: str, own: str, aside: str) -> None:
    """Copies the content aside, then names the copy, unless the name is taken."""
    try:
        _copy_bytes(place, aside)
        _put(aside, own)
    finally:
        if exists(aside):
            _unlink(aside)


def _copy_bytes(place: str, copy: str) -> None:
    """Copies a file to a new file; replaces the leftover of a killed process with the same pid.

    Raises:
        OSError: The source cannot be read; EROFS for a large file without shared blocks.
    """
    if exists(copy):
        _unlink(copy)
    source = _open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sink = _open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if is_large(os.fstat(source)):
                _share_blocks(source, sink, place)
            while data := _read(source, COPY_BYTES):
                while data:
                    data = data[_write(sink, data) :]
        finally:
            _close(sink)
    finally:
        _close(source)


def is_large(status: os.stat_result) -> bool:
    """Whether a file is too large for a copy; the holes of a sparse file do not count."""
    return stat.S_ISREG(status.st_mode) and min(status.st_size, status.st_blocks * 512) >= LARGE_BYTES


def _share_blocks(source: int, sink: int, place: str) -> None:
    """Makes an open file a copy of another, and puts the position of the other at the end.

    Raises:
        OSError: The file system shares no blocks between the files.
    """
    import fcntl  # Few scripts change large files.

    try:
        fcntl.ioctl(sink, FICLONE, source)
    except OSError:
        raise error(errno.EROFS, place) from None
    os.lseek(source, 0, os.SEEK_END)


def _put(aside: str, own: str) -> None:
    """Names a finished file, unless the name is taken.

    Raises:
        FileExistsError: There is.
    """
    try:
        _link(aside, own)
    except OSError as failure:
        # The first version of Landlock permits no links, and no renames, from one folder to another.
        if failure.errno != errno.EXDEV:
            raise
        beside = f"{own}.{os.getpid()}-{get_ident()}"
        _copy_bytes(aside, beside)
        try:
            _link(beside, own)
        finally:
            _unlink(beside)


def make_longer(place: str) -> None:
    """Adds a byte to a file; makes a missing file."""
    descriptor = _open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    _write(descriptor, b".")
    _close(descriptor)


def make_empty(place: str) -> None:
    """Makes an empty file."""
    _close(_open(place, os.O_WRONLY | os.O_CREAT, 0o600))


def remove(place: str) -> None:
    """Removes a file, a link or an empty folder."""
    (_rmdir if is_folder(place) else _unlink)(place)


def remove_tree(folder: str) -> None:
    """Removes a folder with all content."""
    for name in listdir(folder):
        place = join(folder, name)
        (remove_tree if is_folder(place) else _unlink)(place)
    _rmdir(folder)
