"""What the system's functions on paths do in a trial whose writes are redirected.

Each takes what its namesake in `os` takes, and does the same for what is not covered. Standard library only.
"""

# pathlib would be loaded into processes that do without.
# ruff: noqa: PTH118
from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from os.path import join
from typing import Any

from autotune.trial.redirect_layers import RedirectLayers, error

WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
TMPFILE = getattr(os, "O_TMPFILE", 0) & ~getattr(os, "O_DIRECTORY", 0)

layers = RedirectLayers((), ())
"""Covers nothing, until it is set."""
original: dict[str, Callable[..., Any]] = {}
"""The functions that were replaced, by name."""


def looked_up(path: Any, *, follows: bool = True, dir_fd: int | None = None) -> tuple[str, str | None] | None:
    """Real path and place of what is meant; None for all that is not covered, descriptors included."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return None
    text = os.fsdecode(path)
    return layers.look(text, follows=follows, dir_fd=dir_fd) if text and "\0" not in text else None


def there(place: str | None, path: Any) -> str:
    """The place of what must be there."""
    if place is None:
        raise error(errno.ENOENT, path)
    return place


def named(call: Callable[[], Any], path: Any) -> Any:
    """The result of a call; an error of it names the script's path, not the place."""
    try:
        return call()
    except OSError as failure:
        if failure.filename is not None:
            failure.filename, failure.filename2 = path, None
        raise


def plain(name: str, *arguments: Any, **named_arguments: Any) -> Any:
    """The original on its own; descriptors of folders that were not given are left out, as some platforms ask."""
    given = {key: value for key, value in named_arguments.items() if not (key.endswith("dir_fd") and value is None)}
    return original[name](*arguments, **given)


def is_folder(place: str) -> bool:
    """Whether a place is a folder, and no link to one."""
    return stat.S_ISDIR(original["lstat"](place).st_mode)


# Functions that only read, only change, or make: the rest of their arguments is passed on ----------------------------


def reader(name: str, follows: bool) -> Callable[..., Any]:
    """A function that reads what is at a path."""

    def function(path: Any, *arguments: Any, dir_fd: int | None = None, **more: Any) -> Any:
        found = looked_up(path, follows=more.get("follow_symlinks", follows), dir_fd=dir_fd)
        if found is None:
            return plain(name, path, *arguments, dir_fd=dir_fd, **more)
        if found[1] is None and name == "access":
            return False
        place = there(found[1], path)
        result = named(lambda: original[name](place, *arguments, **more), path)
        return os.fsencode(result) if isinstance(path, bytes) and isinstance(result, str) else result

    return function


def changer(name: str, follows: bool) -> Callable[..., Any]:
    """A function that changes what is at a path."""

    def function(path: Any, *arguments: Any, dir_fd: int | None = None, **more: Any) -> Any:
        found = looked_up(path, follows=more.get("follow_symlinks", follows), dir_fd=dir_fd)
        if found is None:
            return plain(name, path, *arguments, dir_fd=dir_fd, **more)
        there(found[1], path)
        return named(lambda: original[name](layers.own_place(found[0]), *arguments, **more), path)

    return function


def maker(name: str, follows: bool) -> Callable[..., Any]:
    """A function that makes something new at a path."""

    def function(path: Any, *arguments: Any, dir_fd: int | None = None, **more: Any) -> Any:
        found = looked_up(path, follows=follows, dir_fd=dir_fd)
        if found is None:
            return plain(name, path, *arguments, dir_fd=dir_fd, **more)
        if found[1] is not None:
            raise error(errno.EEXIST, path)
        return named(lambda: original[name](layers.new_place(found[0]), *arguments, **more), path)

    return function


# Opening ------------------------------------------------------------------------------------------------------------


def os_open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    """os.open."""
    is_exclusive = flags & os.O_CREAT and flags & os.O_EXCL
    found = looked_up(path, follows=not (flags & os.O_NOFOLLOW or is_exclusive), dir_fd=dir_fd)
    if found is None:
        return int(plain("open", path, flags, mode, dir_fd=dir_fd))
    if flags & (WRITE_FLAGS | TMPFILE):
        place = named(lambda: _place_to_write(*found, flags, path), path)
    else:
        place = there(found[1], path)
    return int(named(lambda: original["open"](place, flags, mode), path))


def _place_to_write(real: str, place: str | None, flags: int, path: Any) -> str:
    """Where a file is to be opened for writing, made ready for it."""
    if place is None:
        if not flags & os.O_CREAT:
            raise error(errno.ENOENT, path)
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
    """The built-in open. The file keeps the name that it was given."""
    if opener is None and not isinstance(file, int):
        opener = _opener
    return original["io.open"](file, mode, buffering, encoding, errors, newline, closefd, opener)


def _opener(path: Any, flags: int) -> int:
    return os_open(path, flags, 0o666)


def open_code(path: str) -> Any:
    """io.open_code, with which modules are read."""
    return original["open_code"](place_of(path, writes=False))


def place_of(path: Any, *, writes: bool) -> Any:
    """The place that stands for a path, for code that opens it past Python; anything else comes back as it is.

    Raises:
        OSError: It is to be written, and cannot be.
    """
    found = looked_up(path)
    if found is None:
        return path
    real, place = found
    if writes:
        return _place_to_write(real, place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, path)
    return there(place, path)


# Looking ------------------------------------------------------------------------------------------------------------


def os_stat(path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> Any:
    """os.stat."""
    found = looked_up(path, follows=follow_symlinks, dir_fd=dir_fd)
    if found is None:
        more = {} if follow_symlinks else {"follow_symlinks": False}
        return plain("stat", path, dir_fd=dir_fd, **more)
    return named(lambda: original["lstat"](there(found[1], path)), path)


def os_lstat(path: Any, *, dir_fd: int | None = None) -> Any:
    """os.lstat."""
    return os_stat(path, dir_fd=dir_fd, follow_symlinks=False)


def os_chdir(path: Any) -> None:
    """os.chdir: to the user's own folder where there is one, which programs that the script starts see as it is."""
    found = looked_up(path)
    if found is None:
        original["chdir"](path)
        return
    there(found[1], path)
    places = layers.folder_places(found[0])
    if not places:
        raise error(errno.ENOTDIR, path)
    named(lambda: original["chdir"](places[-1]), path)


def os_getcwd() -> str:
    """os.getcwd."""
    return layers.cwd()


def os_getcwdb() -> bytes:
    """os.getcwdb."""
    return os.fsencode(layers.cwd())


# Removing, renaming, linking ----------------------------------------------------------------------------------------


def os_unlink(path: Any, *, dir_fd: int | None = None) -> None:
    """os.unlink."""
    found = looked_up(path, follows=False, dir_fd=dir_fd)
    if found is None:
        plain("unlink", path, dir_fd=dir_fd)
        return
    if is_folder(there(found[1], path)):
        raise error(errno.EISDIR, path)
    layers.forget()
    named(lambda: layers.remove(found[0]), path)


def os_remove(path: Any, *, dir_fd: int | None = None) -> None:
    """os.remove."""
    os_unlink(path, dir_fd=dir_fd)


def os_rmdir(path: Any, *, dir_fd: int | None = None) -> None:
    """os.rmdir."""
    found = looked_up(path, follows=False, dir_fd=dir_fd)
    if found is None:
        plain("rmdir", path, dir_fd=dir_fd)
        return
    if not is_folder(there(found[1], path)):
        raise error(errno.ENOTDIR, path)
    if layers.names(found[0]):
        raise error(errno.ENOTEMPTY, path)
    layers.forget()
    named(lambda: layers.remove(found[0]), path)


def os_rename(src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
    """os.rename. What is moved is copied to the layer first, with all that is below it."""
    source = looked_up(src, follows=False, dir_fd=src_dir_fd)
    target = looked_up(dst, follows=False, dir_fd=dst_dir_fd)
    if source is None and target is None:
        plain("rename", src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        return
    layers.forget()
    from_place = there(source[1], src) if source is not None else _absolute(src, src_dir_fd)
    if target is not None and target[1] is not None:
        _check_replaceable(from_place, target[0], target[1], dst)
    if source is not None and target is not None and source[0] == target[0]:
        return
    to_place = named(lambda: layers.new_place(target[0]), dst) if target is not None else _absolute(dst, dst_dir_fd)
    if source is not None:
        from_place = named(lambda: layers.own_tree(source[0]), src)
    named(lambda: original["rename"](from_place, to_place), src)
    if source is not None and layers.place(source[0]) is not None:
        layers.remove(source[0])


def os_replace(src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
    """os.replace."""
    os_rename(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)


def _absolute(path: Any, dir_fd: int | None) -> str:
    return join(layers.cwd() if dir_fd is None else layers.folder_of(dir_fd), os.fsdecode(path))


def _check_replaceable(from_place: str, real: str, place: str, dst: Any) -> None:
    """What the system would say to a rename onto something that is there."""
    if is_folder(place):
        if not is_folder(from_place):
            raise error(errno.EISDIR, dst)
        if layers.names(real):
            raise error(errno.ENOTEMPTY, dst)
    elif is_folder(from_place):
        raise error(errno.ENOTDIR, dst)


def os_link(
    src: Any,
    dst: Any,
    *,
    src_dir_fd: int | None = None,
    dst_dir_fd: int | None = None,
    follow_symlinks: bool = True,
) -> None:
    """os.link."""
    source = looked_up(src, follows=False, dir_fd=src_dir_fd)
    target = looked_up(dst, follows=False, dir_fd=dst_dir_fd)
    if source is None and target is None:
        more = {} if follow_symlinks else {"follow_symlinks": False}
        plain("link", src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, **more)
        return
    if target is not None and target[1] is not None:
        raise error(errno.EEXIST, dst)
    from_place = named(lambda: layers.own_place(source[0]), src) if source is not None else _absolute(src, src_dir_fd)
    to_place = named(lambda: layers.new_place(target[0]), dst) if target is not None else _absolute(dst, dst_dir_fd)
    named(lambda: original["link"](from_place, to_place), src)


def os_symlink(src: Any, dst: Any, target_is_directory: bool = False, *, dir_fd: int | None = None) -> None:
    """os.symlink."""
    found = looked_up(dst, follows=False, dir_fd=dir_fd)
    if found is None:
        plain("symlink", src, dst, target_is_directory, dir_fd=dir_fd)
        return
    if found[1] is not None:
        raise error(errno.EEXIST, dst)
    layers.forget()
    named(lambda: original["symlink"](src, layers.new_place(found[0])), dst)
