"""Renames of folders in layers mounted without root's rights. The kernel refuses the rename as a rename across disks.

`os.rename` and `os.replace` copy the folder instead. Programs such as `mv` copy by themselves.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any


def install() -> None:
    """Replaces both functions in this process; once."""
    for name in ("rename", "replace"):
        original = getattr(os, name)
        if not hasattr(original, "is_for_layers"):
            setattr(os, name, _copying(original))


def _copying(original: Callable[..., None]) -> Callable[..., None]:
    def rename(src: Any, dst: Any, **folders: Any) -> None:
        try:
            original(src, dst, **folders)
        except OSError as error:
            if error.errno != errno.EXDEV or folders or not _is_folder_of_same_mount(src, dst):
                raise
            _copy(original, Path(os.fsdecode(src)), Path(os.fsdecode(dst)))

    rename.__name__ = rename.__qualname__ = original.__name__
    rename.__doc__, rename.__module__ = original.__doc__, original.__module__
    rename.is_for_layers = True  # type: ignore[attr-defined]
    return rename


def _is_folder_of_same_mount(src: Any, dst: Any) -> bool:
    try:
        source, parent = Path(os.fsdecode(src)), Path(os.fsdecode(dst)).absolute().parent
        return source.is_dir() and not source.is_symlink() and source.stat().st_dev == parent.stat().st_dev
    except (OSError, TypeError):
        return False


def _copy(original: Callable[..., None], source: Path, target: Path) -> None:
    """Copies a folder beside the new place, renames the copy, then removes the old folder.

    Raises:
        OSError: The rename is impossible, for instance onto a folder with content.
    """
    aside = target.with_name(f".{uuid.uuid4().hex}")
    try:
        shutil.copytree(source, aside, symlinks=True)
        original(aside, target)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    shutil.rmtree(source)
