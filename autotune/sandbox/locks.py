"""Locks of workspaces in use, and removal of abandoned workspaces.

A tuner holds a lock on its workspace. The kernel takes the lock back at the tuner's end. So a folder with a free lock
has no living tuner.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from autotune.sandbox.tree_removal import remove_tree
from autotune.sandbox.trial_processes import end_strays

LOCK = "lock"
TRIALS = "trials"
COMPLETE = "complete"
"""File that marks a finished probe; a workspace without this file holds nothing for a resume."""
KEPT_S = 7 * 24 * 3600.0
"""Time for a resume to use the probe's layer; a new probe can make the layer again."""


class FolderLock:
    """A workspace in use by this process, until the release or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Gives the workspace up; once more is no error."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def claim(folder: Path) -> FolderLock | None:
    """A claim on a workspace; None if another process removed the folder in the meantime.

    Waits for a process that is removing the folder.

    Raises:
        OSError: The folder cannot be written.
    """
    try:
        descriptor = _open_lock(folder)
    except FileNotFoundError:
        return None
    # A file system without locks has no sweeping either: no process gets the lock.
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    if not _is_in_place(descriptor, folder):
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, _boot_id().encode())
    os.utime(descriptor)
    return FolderLock(descriptor)


def sweep(bases: Iterable[Path]) -> None:
    """Ends the processes of dead tuners, and removes their folders.

    A completed layer of a probe is kept for `KEPT_S`, for a resume. Folders in use, and folders of other users, stay.

    Args:
        bases: Folders of workspaces; missing folders, and folders not of this user alone, are passed over.
    """
    for folder in _workspaces(bases):
        with suppress(OSError):
            _clear(folder)


def _workspaces(bases: Iterable[Path]) -> Iterator[Path]:
    for base in bases:
        with suppress(OSError):
            if is_ours(base):
                yield from (folder for folder in sorted(base.iterdir()) if folder.is_dir() and not folder.is_symlink())


def is_ours(base: Path) -> bool:
    """Whether a folder of workspaces is this user's alone: the folder may lie where all users can write.

    Raises:
        OSError: There is none.
    """
    status = base.lstat()
    return not base.is_symlink() and status.st_uid == os.getuid() and not status.st_mode & 0o022


def _clear(folder: Path) -> None:
    descriptor = _open_lock(folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_in_place(descriptor, folder):
            return
        is_recent = time.time() - os.fstat(descriptor).st_mtime < KEPT_S
        if is_recent and os.read(descriptor, 100) not in (b"", _boot_id().encode()):
            return  # Of another machine; a shared file system may hide the lock.
        trials = folder / TRIALS
        if trials.is_dir() and any(trials.iterdir()):
            end_strays(trials)
            remove_tree(trials)
        if not (is_recent and (folder / COMPLETE).is_file()):
            remove_tree(folder)
    finally:
        os.close(descriptor)


def _open_lock(folder: Path) -> int:
    return os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _is_in_place(descriptor: int, folder: Path) -> bool:
    """Whether the opened lock is still the folder's: another process may have removed the folder."""
    try:
        return os.path.samestat(os.fstat(descriptor), (folder / LOCK).lstat())
    except FileNotFoundError:
        return False


def _boot_id() -> str:
    """Id of this boot of the machine; empty if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
