"""The system's functions on paths, for a trial with redirected writes.

Each function takes the arguments of its namesake in `os`, and calls the original outside of covered folders. Standard
library only.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import Any

from autotune.sandbox.redirection.real_places import error
from autotune.sandbox.redirection.redirect_layers import Found, RedirectLayers

WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
TMPFILE = getattr(os, "O_TMPFILE", 0) & ~getattr(os, "O_DIRECTORY", 0)

layers = RedirectLayers((), ())
"""Covers nothing until `install`."""
original: dict[str, Callable[..., Any]] = {}
"""The replaced functions, by name."""


def looked_up(path: Any, *, follows: bool = True, dir_fd: int | None = None) -> tuple[Found | None, Any, int | None]:
    """The meaning of a covered path, or None, and the argument for the original."""
    if type(path) is str:
        text = path
    elif isinstance(path, (str, bytes, os.PathLike)):
        text = os.fsdecode(path)
    else:
        return None, path, dir_fd
    found = layers.look(text, follows=follows, dir_fd=dir_fd) if text and "\0" not in text else None
    if found is None or found.is_covered:
        return found, path, dir_fd
    return None, found.real, None


def there(found: Found, path: Any) -> str:
    """The place of an entry that must exist."""
    if found.place is None:
        raise error(layers.why_missing(found.real), path)
    return found.place


def named(call: Callable[[], Any], path: Any) -> Any:
    """The result of a call; an error names the script's path, not the place."""
    try:
        return call()
    except OSError as failure:
        if failure.filename is not None:
            failure.filename, failure.filename2 = path, None
        raise


def plain(name: str, *arguments: Any, **named_arguments: Any) -> Any:
    """Calls the original; leaves out folder descriptors of None, for platforms without folder descriptors."""
    for key in ("dir_fd", "src_dir_fd", "dst_dir_fd"):
        if key in named_arguments and named_arguments[key] is None:
            del named_arguments[key]
    return original[name](*arguments, **named_arguments)


def is_folder(place: str) -> bool:
    """Whether a place is a folder; a link to a folder does not count."""
    return stat.S_ISDIR(original["lstat"](place).st_mode)


# Functions that only read, only change, or make: the rest of their arguments is passed on ----------------------------


def reader(name: str, follows: bool) -> Callable[..., Any]:
    """A function that reads at a path."""

    def function(path: Any, *arguments: Any, dir_fd: int | None = None, **more: Any) -> Any:
        found, path, dir_fd = looked_up(path, follows=more.get("follow_symlinks", follows), dir_fd=dir_fd)
        if found is None:
            return plain(name, path, *arguments, dir_fd=dir_fd, **more)
        place = there(found, path)
        result = named(lambda: original[name](place, *arguments, **more), path)
        return os.fsencode(result) if isinstance(path, bytes) and isinstance(result, str) else result

    return function


_access = reader("access", follows=True)


def os_access(path: Any, *arguments: Any, **more: Any) -> bool:
    """os.access; an error of the path gives False."""
    try:
        return bool(_access(path, *arguments, **more))
    except OSError:
        return False


def changer(name: str, follows: bool) -> Callable[..., Any]:
    """A function that changes the entry at a path."""

    def function(path: Any, *arguments: Any, dir_fd: int | None = None, **more: Any) -> Any:
        found, path, dir_fd = looked_up(path, follows=more.get("follow_symlinks", follows), dir_fd=dir_fd)
        if found is None:
            return plain(name, path, *arguments, dir_fd=dir_fd, **more)
        there(found, path)
        return named(lambda: original[name](layers.own_place(found.real), *arguments, **more), path)

    return function


def maker(name: str, follows: bool) -> Callable[..., Any]:
    """A function that makes an entry at a path."""

    def function(path: Any, *arguments: Any, dir_fd: int | None = None, **more: Any) -> Any:
        found, path, dir_fd = looked_up(path, follows=follows, dir_fd=dir_fd)
        if found is None:
            return plain(name, path, *arguments, dir_fd=dir_fd, **more)
        if found.place is not None:
            raise error(errno.EEXIST, path)
        named(lambda: original[name](layers.new_place(found.real), *arguments, **more), path)
        layers.changed()
        return None

    return function


# Opening ------------------------------------------------------------------------------------------------------------


def os_open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    """os.open."""
    is_exclusive = flags & os.O_CREAT and flags & os.O_EXCL
    found, path, dir_fd = looked_up(path, follows=not (flags & os.O_NOFOLLOW or is_exclusive), dir_fd=dir_fd)
    if found is None:
        return int(plain("open", path, flags, mode, dir_fd=dir_fd))
    if flags & (WRITE_FLAGS | TMPFILE):
        place = named(lambda: _place_to_write(found, flags, path), path)
    else:
        place = there(found, path)
    return int(named(lambda: original["open"](place, flags, mode), path))


def _place_to_write(found: Found, flags: int, path: Any) -> str:
    """The place for writing to a file, ready for the open call."""
    real, place, _ = found
    if place is None:
        if not flags & os.O_CREAT:
            raise error(layers.why_missing(real), path)
        return layers.new_place(real)
    if flags & os.O_CREAT and flags & os.O_EXCL:
        raise error(errno.EEXIST, path)
    kind = stat.S_IFMT(original["lstat"](place).st_mode)
    if kind == stat.S_IFDIR and not flags & TMPFILE:
        raise error(errno.EISDIR, path)
    if kind not in (stat.S_IFREG, stat.S_IFDIR):
        return place  # A device or a pipe holds nothing of the user's; a link was not to be followed.
    if not original["access"](place, os.W_OK):
        raise error(errno.EACCES, path)
    return layers.own_place(real, keeps_content=not flags & os.O_TRUNC)


def open_file(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    """The built-in open. The file keeps the given name."""
    if opener is None and not isinstance(file, int):
        opener = _opener
    return original["io.open"](file, mode, buffering, encoding, errors, newline, closefd, opener)


def _opener(path: Any, flags: int) -> int:
    return os_open(path, flags, 0o666)


def open_code(path: str) -> Any:
    """io.open_code, for reading modules."""
    return original["open_code"](place_of(path, writes=False))


def place_of(path: Any, *, writes: bool, keeps_content: bool = False) -> Any:
    """The place of a path, for native code; any other value comes back unchanged.

    Raises:
        OSError: The path cannot be written.
    """
    found, path, _ = looked_up(path)
    if found is None:
        return path
    if writes:
        return _place_to_write(found, os.O_WRONLY | os.O_CREAT | (0 if keeps_content else os.O_TRUNC), path)
    return there(found, path)


# Looking ------------------------------------------------------------------------------------------------------------


def os_stat(path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> Any:
    """os.stat."""
    found, path, dir_fd = looked_up(path, follows=follow_symlinks, dir_fd=dir_fd)
    if found is None:
        more = {} if follow_symlinks else {"follow_symlinks": False}
        return plain("stat", path, dir_fd=dir_fd, **more)
    return named(lambda: original["lstat"](there(found, path)), path)


def os_lstat(path: Any, *, dir_fd: int | None = None) -> Any:
    """os.lstat."""
    return os_stat(path, dir_fd=dir_fd, follow_symlinks=False)


def os_chdir(path: Any) -> None:
    """os.chdir, to the user's own folder if possible: programs started by the script see no layers."""
    found, path, _ = looked_up(path)
    if found is None:
        original["chdir"](path)
        return
    there(found, path)
    places = layers.folder_places(found.real)
    if not places:
        raise error(errno.ENOTDIR, path)
    named(lambda: original["chdir"](places[-1]), path)


def os_getcwd() -> str:
    """os.getcwd."""
    return layers.cwd()


def os_getcwdb() -> bytes:
    """os.getcwdb."""
    return os.fsencode(layers.cwd())
