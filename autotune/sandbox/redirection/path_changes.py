"""Removing, renaming and linking in a trial with redirected writes. Standard library only."""

# pathlib would be loaded into processes without need for pathlib.
# ruff: noqa: PTH118, PTH120
from __future__ import annotations

import errno
import os
from os.path import dirname, join
from typing import Any

from autotune.sandbox.redirection import path_calls
from autotune.sandbox.redirection.path_calls import is_folder, looked_up, named, plain, there
from autotune.sandbox.redirection.real_places import error


def os_unlink(path: Any, *, dir_fd: int | None = None) -> None:
    """os.unlink."""
    found, path, dir_fd = looked_up(path, follows=False, dir_fd=dir_fd)
    if found is None:
        plain("unlink", path, dir_fd=dir_fd)
        return
    if is_folder(there(found, path)):
        raise error(errno.EISDIR, path)
    named(lambda: path_calls.layers.remove(found.real), path)


def os_remove(path: Any, *, dir_fd: int | None = None) -> None:
    """os.remove."""
    os_unlink(path, dir_fd=dir_fd)


def os_rmdir(path: Any, *, dir_fd: int | None = None) -> None:
    """os.rmdir."""
    found, path, dir_fd = looked_up(path, follows=False, dir_fd=dir_fd)
    if found is None:
        plain("rmdir", path, dir_fd=dir_fd)
        return
    if not is_folder(there(found, path)):
        raise error(errno.ENOTDIR, path)
    if path_calls.layers.names(found.real):
        raise error(errno.ENOTEMPTY, path)
    named(lambda: path_calls.layers.remove(found.real), path)


def os_rename(src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
    """os.rename. The source is copied to the layer first, with all content."""
    source, src, src_dir_fd = looked_up(src, follows=False, dir_fd=src_dir_fd)
    target, dst, dst_dir_fd = looked_up(dst, follows=False, dir_fd=dst_dir_fd)
    if source is None and target is None:
        plain("rename", src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        return
    for found, path in ((source, src), (target, dst)):
        if found is not None:
            path_calls.layers.must_be_folder(dirname(found.real), path)
    from_place = there(source, src) if source is not None else _absolute(src, src_dir_fd)
    if source is not None and target is not None:
        if source.real == target.real:
            return
        if target.real.startswith(source.real + "/"):
            raise error(errno.EINVAL, src)
        if source.real.startswith(target.real + "/"):
            raise error(errno.ENOTEMPTY, dst)
    if target is not None and target.place is not None:
        _check_replaceable(from_place, target.real, target.place, dst)
    to_place = (
        named(lambda: path_calls.layers.new_place(target.real), dst)
        if target is not None
        else _absolute(dst, dst_dir_fd)
    )
    if source is not None:
        from_place = named(lambda: path_calls.layers.own_tree(source.real), src)
    named(lambda: path_calls.original["rename"](from_place, to_place), src)
    path_calls.layers.changed()
    # Two names of the same file: the system renames nothing.
    if source is not None and path_calls.layers.place(source.real) not in (None, from_place):
        path_calls.layers.remove(source.real)


def os_replace(src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
    """os.replace."""
    os_rename(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)


def _absolute(path: Any, dir_fd: int | None) -> str:
    return join(path_calls.layers.cwd() if dir_fd is None else path_calls.layers.folder_of(dir_fd), os.fsdecode(path))


def _check_replaceable(from_place: str, real: str, place: str, dst: Any) -> None:
    """The system's error for a rename onto an existing entry; None without an error."""
    if is_folder(place):
        if not is_folder(from_place):
            raise error(errno.EISDIR, dst)
        if path_calls.layers.names(real):
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
    source, src, src_dir_fd = looked_up(src, follows=False, dir_fd=src_dir_fd)
    target, dst, dst_dir_fd = looked_up(dst, follows=False, dir_fd=dst_dir_fd)
    if source is None and target is None:
        more = {} if follow_symlinks else {"follow_symlinks": False}
        plain("link", src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, **more)
        return
    from_place = there(source, src) if source is not None else _absolute(src, src_dir_fd)
    if target is not None:
        path_calls.layers.must_be_folder(dirname(target.real), dst)
    if target is not None and target.place is not None:
        raise error(errno.EEXIST, dst)
    if source is not None and is_folder(from_place):
        raise error(errno.EPERM, src)
    to_place = (
        named(lambda: path_calls.layers.new_place(target.real), dst)
        if target is not None
        else _absolute(dst, dst_dir_fd)
    )
    if source is not None:
        from_place = named(lambda: path_calls.layers.own_place(source.real), src)
    named(lambda: path_calls.original["link"](from_place, to_place), src)
    path_calls.layers.changed()


def os_symlink(src: Any, dst: Any, target_is_directory: bool = False, *, dir_fd: int | None = None) -> None:
    """os.symlink."""
    found, dst, dir_fd = looked_up(dst, follows=False, dir_fd=dir_fd)
    if found is None:
        plain("symlink", src, dst, target_is_directory, dir_fd=dir_fd)
        return
    if found.place is not None:
        raise error(errno.EEXIST, dst)
    named(lambda: path_calls.original["symlink"](src, path_calls.layers.new_place(found.real)), dst)
    path_calls.layers.changed()
