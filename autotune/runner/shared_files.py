"""What a killed trial leaves in shared memory, given back: tensors of loader workers, semaphores, NCCL's buffers.

Standard library only: the warden loads this file. A file is removed when it has a name that such libraries give, is
ours and for our eyes only, was not there when the trial began, and no living process made it or has it open.
"""

from __future__ import annotations

import os
import re
import stat
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


def remove_new(before: frozenset[tuple[str, int]], folder: Path = FOLDER) -> tuple[str, ...]:
    """Removes what is not in `before`, is ours, and is in nobody's use; returns the names."""
    ours = {name: inode for name, inode in present(folder) - before if _is_private(folder / name)}
    if not ours:
        return ()
    in_use = _inodes_in_use(folder.stat().st_dev)
    removed = []
    for name, inode in sorted(ours.items()):
        match = NAMES.match(name)
        maker = match["pid"] if match is not None else None
        if inode in in_use or (maker is not None and Path("/proc", maker).exists()):
            continue
        try:
            (folder / name).unlink()
        except OSError:
            continue
        removed.append(name)
    return tuple(removed)


def _is_private(path: Path) -> bool:
    """Whether only processes of this user can have it open, so that looking at those is enough."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _inodes_in_use(device: int) -> set[int]:
    """Inodes on `device` that a process of ours has open or mapped; those of others cannot be looked at."""
    inodes: set[int] = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
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
