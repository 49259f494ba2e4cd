"""Redirection of a trial's writes to a layer, for systems without overlay mounts.

Python's functions on paths are replaced in `os`, `io` and `builtins` before the script runs. Writes under a covered
folder go to the trial's layer; reads come from the nearest layer with the file. torch and a few other libraries open
files natively, and get the place in the layer. Programs started by the script are not redirected: the tuner compares
the user's folder before and after, and names escaped changes. Standard library only.
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
"""Functions that do not follow a link at the end of a path."""
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
    """Redirects this process by the plan in the environment; once."""
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
            # In both modules: the import system uses `posix`.
            _put((os, posix), name, function)
    lower_io = __import__("_io")
    _put((io, lower_io, builtins), "open", path_calls.open_file)
    _put((io, lower_io), "open_code", path_calls.open_code)
    native_calls.install()


def renew() -> None:
    """Reads the plan in the environment anew, for a forked process."""
    plan = decode(RedirectionPlan, os.environ[REDIRECT])
    path_calls.layers = RedirectLayers(plan.covered, plan.layers, plan.spared)
    path_calls.layers.prepare()


def stand_down() -> None:
    """Stops the redirection until `renew`."""
    path_calls.layers = RedirectLayers((), ())


@functools.cache
def install_torch(torch: Any) -> None:
    """Redirects torch's files opened in C++; once."""
    for name, functions in native_calls.TORCH.items():
        owner = torch
        for part in name.split(".")[1:]:
            owner = getattr(owner, part)
        native_calls.redirect(owner, functions)


def _put(owners: tuple[Any, ...], name: str, function: Callable[..., Any]) -> None:
    """Replaces a function in all modules, with the original's name, for pickle too."""
    original = getattr(owners[0], name)
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(function, attribute, getattr(original, attribute, None))
    for owner in owners:
        setattr(owner, name, function)
    for able in (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks):
        if original in able:
            able.add(function)
