"""States of files, links and folders, to compare before and after."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Any

States = dict[str, Any]
"""State by path."""


def states(*roots: Path) -> States:
    """Kind, rights, owner, size, time, links, attributes and content of everything below the folders."""
    seen: States = {}
    for root in roots:
        for place, folders, files in os.walk(root):
            for name in (".", *folders, *files):
                path = os.path.normpath(os.path.join(place, name))
                seen[path] = _state(path)
    return seen


def differences(before: States, after: States, *, ignores_times_of_folders: bool = False) -> tuple[str, ...]:
    """Paths with different states.

    Args:
        before: Earlier states.
        after: Later states.
        ignores_times_of_folders: Whether folders with equal rights and owners count as equal.
    """
    changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    if ignores_times_of_folders:
        changed = {path for path in changed if not _are_equal_folders(before.get(path), after.get(path))}
    return tuple(sorted(changed))


def _are_equal_folders(before: Any, after: Any) -> bool:
    is_tuple = isinstance(before, tuple) and isinstance(after, tuple)
    return is_tuple and stat.S_ISDIR(before[0]) and before[:3] == after[:3]


def _state(path: str) -> Any:
    try:
        status = os.lstat(path)
        content = ""
        if stat.S_ISLNK(status.st_mode):
            content = os.readlink(path)
        elif stat.S_ISREG(status.st_mode) and status.st_size < 1 << 30:
            content = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        attributes = tuple(os.listxattr(path, follow_symlinks=False))
    except OSError as error:
        return f"unreadable: {error.errno}"
    owner = (status.st_uid, status.st_gid)
    return (status.st_mode, owner, attributes, status.st_size, status.st_mtime_ns, status.st_nlink, content)
