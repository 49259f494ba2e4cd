"""Writes of a trial redirected to its layer, where the system permits no overlay mounts.

Python's functions on paths are replaced in `os`, `io` and `builtins` before the script runs; what is written under a
covered folder goes to the trial's layer, and what is read comes from the first layer that has it. torch and a few other
libraries, which open files by themselves, are given the place in the layer. Programs that the script starts are not
reached: the tuner compares the user's folder before and after, and says what escaped. Standard library only.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import posix
from collections.abc import Callable
from typing import Any

from autotune.protocol.codec import decode
from autotune.protocol.environment import REDIRECT
from autotune.protocol.supervision import RedirectionPlan
from autotune.sandbox.redirection import merged_folders, native_calls, path_calls, path_changes
from autotune.sandbox.redirection.redirect_layers import RedirectLayers

READING = ("getxattr", "listxattr", "pathconf", "readlink", "statvfs")
CHANGING = ("chmod", "chown", "lchown", "removexattr", "setxattr", "truncate", "utime")
MAKING = ("mkdir", "mkfifo", "mknod")
ABOUT_LINKS = ("lchown", "mkdir", "mkfifo", "mknod", "readlink")
"""They take a link at the end of a path for itself."""
OTHERS: dict[str, Callable[..., Any]] = {
    "open": path_calls.os_open,
    "stat": path_calls.os_stat,
    "lstat": path_calls.os_lstat,
    "access": path_calls.os_access,
    "chdir": path_calls.os_chdir,
    "getcwd": path_calls.os_getcwd,
    "getcwdb": path_calls.os_getcwdb,
    "unlink": path_changes.os_unlink,
    "remove": path_changes.os_remove,
    "rmdir": path_changes.os_rmdir,
    "rename": path_changes.os_rename,
    "replace": path_changes.os_replace,
    "link": path_changes.os_link,
    "symlink": path_changes.os_symlink,
    "listdir": merged_folders.os_listdir,
    "scandir": merged_folders.os_scandir,
}


def install() -> None:
    """Redirects this process as its environment says; once."""
    if path_calls.original:
        return
    renew()
    names = (*READING, *CHANGING, *MAKING, *OTHERS)
    path_calls.original.update({name: getattr(posix, name) for name in names if hasattr(posix, name)})
    path_calls.original.update({"io.open": io.open, "open_code": io.open_code})
    makers = [(READING, path_calls.reader), (CHANGING, path_calls.changer), (MAKING, path_calls.maker)]
    made = {name: make(name, name not in ABOUT_LINKS) for group, make in makers for name in group}
    for name, function in {**made, **OTHERS}.items():
        if name in path_calls.original:
            # In both: the import system uses the lower one.
            _put((os, posix), name, function)
    lower_io = __import__("_io")
    _put((io, lower_io, builtins), "open", path_calls.open_file)
    _put((io, lower_io), "open_code", path_calls.open_code)
    native_calls.install()


def renew() -> None:
    """Takes the layers that the environment names now: a forked process has its own."""
    plan = decode(RedirectionPlan, os.environ[REDIRECT])
    path_calls.layers = RedirectLayers(plan.covered, plan.layers, plan.spared)
    path_calls.layers.prepare()


def stand_down() -> None:
    """Lets every path mean what it always does, until `renew`."""
    path_calls.layers = RedirectLayers((), ())


@functools.cache
def install_torch(torch: Any) -> None:
    """Redirects what torch opens by itself, in C++; once."""
    for name, functions in native_calls.TORCH.items():
        owner = torch
        for part in name.split(".")[1:]:
            owner = getattr(owner, part)
        native_calls.redirect(owner, functions)


def _put(owners: tuple[Any, ...], name: str, function: Callable[..., Any]) -> None:
    """Replaces a function wherever it is known, under the name that it had, by which it is also pickled."""
    original = getattr(owners[0], name)
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(function, attribute, getattr(original, attribute, None))
    for owner in owners:
        setattr(owner, name, function)
    for able in (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks):
        if original in able:
            able.add(function)
