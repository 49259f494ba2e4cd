"""Which workspaces are in use, and the end of those that nobody comes back to.

A tuner holds a lock on its workspace, which the kernel takes back however the tuner ends. So a folder whose lock is
free belongs to nobody that lives.
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
COMPLETE = Path("study", "complete")
"""There once the probe is through: only then is there something that a resume would miss."""
KEPT_S = 7 * 24 * 3600.0
"""How long the probe's layer of a study that was left is kept for its resume; a new probe can make it again."""


class FolderLock:
    """A workspace in use by this process, until it is released or the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Gives the workspace up; once more is no error."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def claim(folder: Path) -> FolderLock | None:
    """A claim on a workspace; None where somebody removed the folder meanwhile.

    Whoever clears the folder away at this moment is waited for.

    Raises:
        OSError: The folder cannot be written.
    """
    try:
        descriptor = _open_lock(folder)
    except FileNotFoundError:
        return None
    # A file system without locks has no sweeping either: nobody gets the lock there.
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
    """Ends what dead tuners left running, and removes what they left lying.

    A layer that a probe completed is kept for `KEPT_S`, since its study may be resumed. Folders in use, and whatever
    is not ours, are left alone.

    Args:
        bases: Folders of workspaces; those that are not there, or not this user's alone, are passed over.
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
    """Whether a folder of workspaces is this user's alone: it may lie where everybody can write.

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
            return  # Of another machine, whose locks a shared file system may not show.
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
    """Whether the lock that was opened is still the folder's: another process may have removed both."""
    try:
        return os.path.samestat(os.fstat(descriptor), (folder / LOCK).lstat())
    except FileNotFoundError:
        return False


def _boot_id() -> str:
    """Changes with every boot of the machine; empty where unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
