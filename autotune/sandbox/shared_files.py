"""Removal of a killed trial's files from shared memory: tensors of loader workers, semaphores, NCCL's buffers.

Standard library only: the supervisor loads this file. A file is removed if all of this holds: a library gave the name;
the file is new since the start of the trial; this user owns the file, and has the only rights; a process of the trial
made the file or had the file open; no living process has the file open. Another container may share the folder and hide
its processes, so an unused file alone is no proof.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path("/dev/shm")
NAMES = re.compile(r"torch_(?P<pid>\d+)_|psm_|sem\.|nccl-")
"""torch's shared tensors (with the maker's pid), multiprocessing.shared_memory, POSIX semaphores, NCCL."""


def present(folder: Path = FOLDER) -> frozenset[tuple[str, int]]:
    """(name, inode) of all files with a known name."""
    try:
        with os.scandir(folder) as entries:
            return frozenset((entry.name, entry.inode()) for entry in entries if NAMES.match(entry.name))
    except OSError:
        return frozenset()


class SharedFiles:
    """What one trial makes there.

    Args:
        before: `present` at the start of the trial.
        folder: Where.
    """

    def __init__(self, before: Iterable[tuple[str, int]], folder: Path = FOLDER) -> None:
        self._before, self._folder = frozenset(before), folder
        self._makers: set[int] = set()
        self._used: set[int] = set()

    def note(self, pids: Iterable[int]) -> None:
        """Notes the files in use by processes of the trial, dead or alive."""
        noted = set(pids)
        self._makers |= noted
        if self._new():
            self._used |= _inodes_in_use((Path("/proc", str(pid)) for pid in noted), self._folder)

    def remove(self) -> tuple[str, ...]:
        """Removes the trial's unused files; returns the names."""
        ours = {name: inode for name, inode in self._new() if self._is_the_trials(name, inode)}
        if not ours:
            return ()
        everybody = (path for path in Path("/proc").iterdir() if path.name.isdigit())
        in_use = _inodes_in_use(everybody, self._folder)
        removed = []
        for name, inode in sorted(ours.items()):
            maker = _maker(name)
            if inode in in_use or (maker is not None and Path("/proc", str(maker)).exists()):
                continue
            try:
                (self._folder / name).unlink()
            except OSError:
                continue
            removed.append(name)
        return tuple(removed)

    def _new(self) -> frozenset[tuple[str, int]]:
        return present(self._folder) - self._before

    def _is_the_trials(self, name: str, inode: int) -> bool:
        return (inode in self._used or _maker(name) in self._makers) and _is_private(self._folder / name)


def _maker(name: str) -> int | None:
    """The pid of a file's maker, from the name; None for a name without a pid."""
    match = NAMES.match(name)
    return int(match["pid"]) if match is not None and match["pid"] is not None else None


def _is_private(path: Path) -> bool:
    """Whether only processes of this user can open a file; other users' processes cannot be examined."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _inodes_in_use(processes: Iterable[Path], folder: Path) -> set[int]:
    """Inodes on the folder's device, open or mapped in these processes; other users' processes cannot be examined."""
    try:
        device = folder.stat().st_dev
    except OSError:
        return set()
    inodes: set[int] = set()
    for process in processes:
        inodes.update(_inodes_open(process, device), _inodes_mapped(process, device))
    return inodes


def _inodes_open(process: Path, device: int) -> set[int]:
    inodes = set()
    try:
        descriptors = list((process / "fd").iterdir())
    except OSError:
        return set()
    for descriptor in descriptors:
        try:
            status = descriptor.stat()
        except OSError:
            continue
        if status.st_dev == device:
            inodes.add(status.st_ino)
    return inodes


def _inodes_mapped(process: Path, device: int) -> set[int]:
    number = b"%02x:%02x" % (os.major(device), os.minor(device))
    try:
        lines = (process / "maps").read_bytes().splitlines()
    except OSError:
        return set()
    return {int(line.split(None, 5)[4]) for line in lines if line.split(None, 5)[3] == number}
