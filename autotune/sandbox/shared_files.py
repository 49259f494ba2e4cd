"""What a killed trial leaves in shared memory, given back: tensors of loader workers, semaphores, NCCL's buffers.

Standard library only: the supervisor loads this file. A file is removed when it has a name that such libraries give, is
ours and for our eyes only, was not there when the trial began, a process of the trial made it or was seen to have it
open, and no living process has. What is only in nobody's use may be in that of another container, which shares the
folder and shows us none of its processes.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path("/dev/shm")
NAMES = re.compile(r"torch_(?P<pid>\d+)_|psm_|sem\.|nccl-")
"""torch's shared tensors (with the pid of who made them), multiprocessing.shared_memory, POSIX semaphores, NCCL."""


def present(folder: Path = FOLDER) -> frozenset[tuple[str, int]]:
    """(name, inode) of all files there with a name that we know."""
    try:
        with os.scandir(folder) as entries:
            return frozenset((entry.name, entry.inode()) for entry in entries if NAMES.match(entry.name))
    except OSError:
        return frozenset()


class SharedFiles:
    """What one trial makes there.

    Args:
        before: What was `present` when it began.
        folder: Where.
    """

    def __init__(self, before: Iterable[tuple[str, int]], folder: Path = FOLDER) -> None:
        self._before, self._folder = frozenset(before), folder
        self._makers: set[int] = set()
        self._used: set[int] = set()

    def note(self, pids: Iterable[int]) -> None:
        """Notes what these processes of the trial, which may have ended, have in use."""
        noted = set(pids)
        self._makers |= noted
        if self._new():
            self._used |= _inodes_in_use((Path("/proc", str(pid)) for pid in noted), self._folder)

    def remove(self) -> tuple[str, ...]:
        """Removes what is the trial's and in nobody's use; returns the names."""
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
    """The process that made a file, where its name says so."""
    match = NAMES.match(name)
    return int(match["pid"]) if match is not None and match["pid"] is not None else None


def _is_private(path: Path) -> bool:
    """Whether only processes of this user can have it open, so that looking at those is enough."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _inodes_in_use(processes: Iterable[Path], folder: Path) -> set[int]:
    """Inodes on the folder's device that these have open or mapped; processes of others cannot be looked at."""
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
