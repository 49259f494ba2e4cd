"""Files, folders and links where they really are: the system's own functions, taken before they are replaced."""

# pathlib would be loaded into processes that do without.
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
"""There is nothing, because a file is where a folder above it would be: that hides what the layers below have."""
COPY_BYTES = 1 << 20


def make_folders(folder: str) -> bool:
    """Makes a folder with those above it, and says whether any was missing. Another process may be faster."""
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
    """The error that the system would raise."""
    return OSError(number, os.strerror(number), path)


def mode_of(place: str) -> int | None:
    """The mode of what is there, a link's own; None where there is nothing."""
    try:
        return lstat(place).st_mode
    except (OSError, ValueError):
        return None


def size_of(place: str) -> int:
    """The size of a file; -1 where there is none."""
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
    """Whether anything is there, a broken link included."""
    return kind_of(place) in (FOLDER, OTHER)


def is_folder(place: str) -> bool:
    """Whether a folder is there, and no link to one."""
    return kind_of(place) == FOLDER


def is_link(place: str) -> bool:
    """Whether a link is there."""
    try:
        return stat.S_ISLNK(lstat(place).st_mode)
    except OSError:
        return False


def link_target(place: str) -> str | None:
    """What a link says; None where there is none."""
    try:
        return readlink(place)
    except OSError:
        return None


def is_marked(marker: str) -> bool:
    """Whether the mark is there, or one of a folder above it, which then is a file where a folder is looked for."""
    try:
        return stat.S_ISREG(lstat(marker).st_mode)
    except NotADirectoryError:
        return True
    except OSError:
        return False


def copy(place: str, own: str, *, aside: str, keeps_content: bool) -> None:
    """Copies a file with its permissions and times, a link as it is, a folder without what is in it.

    What another process of the trial has put there meanwhile stays.

    Raises:
        OSError: It cannot be read, or is a socket or a device.
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
    """Copies the content aside, and puts it there as a whole unless something is."""
    try:
        _copy_bytes(place, aside)
        _put(aside, own)
    finally:
        if exists(aside):
            _unlink(aside)


def _copy_bytes(place: str, copy: str) -> None:
    """Copies a file to a new one of its own; what a killed process of the same number left there gives way."""
    if exists(copy):
        _unlink(copy)
    source = _open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sink = _open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            while data := _read(source, COPY_BYTES):
                while data:
                    data = data[_write(sink, data) :]
        finally:
            _close(sink)
    finally:
        _close(source)


def _put(aside: str, own: str) -> None:
    """Gives a finished file its name, unless there is something of that name.

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
    """Adds a byte to a file, which is made where there is none."""
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
    """Removes a folder with all that is in it."""
    for name in listdir(folder):
        place = join(folder, name)
        (remove_tree if is_folder(place) else _unlink)(place)
    _rmdir(folder)
