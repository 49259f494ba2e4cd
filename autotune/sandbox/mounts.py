"""The table of mounts of this process. Standard library only."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

SPECIAL = frozenset(
    {
        "autofs",
        "binfmt_misc",
        "bpf",
        "cgroup",
        "cgroup2",
        "configfs",
        "debugfs",
        "devpts",
        "devtmpfs",
        "efivarfs",
        "fusectl",
        "hugetlbfs",
        "mqueue",
        "nsfs",
        "proc",
        "pstore",
        "rpc_pipefs",
        "securityfs",
        "selinuxfs",
        "sysfs",
        "tracefs",
    }
)
"""Kinds of file systems with files of the kernel alone."""


class Mount(NamedTuple):
    """One mount."""

    number: int
    """Of the mount, not of the file system."""
    point: str
    """Where it is."""
    kind: str
    """Of its file system."""
    is_writable: bool
    """Whether the mount permits writes."""
    source: str = ""
    """Device, server or program behind the file system."""

    @property
    def is_special(self) -> bool:
        """Whether the mount has files of the kernel alone."""
        return self.kind in SPECIAL

    @property
    def description(self) -> str:
        """Kind and source, such as `nfs4 on server:/data`."""
        return f"{self.kind} on {self.source}"


TABLE = Path("/proc/self/mountinfo")


def mounted(table: Path = TABLE) -> list[Mount]:
    """All mounts, hidden mounts included, in order of their paths; mounts of the same path are in order of time."""
    try:
        lines = table.read_bytes().splitlines()
    except OSError:
        return []
    return sorted(map(_read, lines), key=lambda mount: mount.point)


def _read(line: bytes) -> Mount:
    words = line.split()
    dash = words.index(b"-")
    kind, source = (word.decode(errors="replace") for word in words[dash + 1 : dash + 3])
    # The kernel writes space, tab, newline and backslash as three octal digits.
    point = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), words[4])
    is_writable = b"rw" in words[5].split(b",") and b"rw" in words[dash + 3].split(b",")
    return Mount(int(words[0]), os.fsdecode(point), kind, is_writable, source)


def mount_above(path: str, table: Path = TABLE) -> Mount | None:
    """The mount with an absolute path: of the deepest mounts the latest; None when unknown."""
    above = [mount for mount in mounted(table) if Path(path).is_relative_to(mount.point)]
    return max(reversed(above), key=lambda mount: len(mount.point), default=None)


def in_sight(mounts: list[Mount]) -> list[Mount]:
    """The mounts within reach of a path: no later mount hides the mount point or a folder above."""
    return [mount for mount in mounts if _number_at(mount.point) == mount.number]


def _number_at(point: str) -> int | None:
    """Number of the mount at a path; None if the path cannot be opened."""
    try:
        descriptor = os.open(point, os.O_PATH | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        said = Path("/proc/self/fdinfo", str(descriptor)).read_bytes()
        return next((int(line.split()[1]) for line in said.splitlines() if line.startswith(b"mnt_id:")), None)
    finally:
        os.close(descriptor)


def mounts_below(folder: str) -> list[str]:
    """Mount points strictly inside `folder`, outer mount points first."""
    points = {mount.point for mount in mounted()}
    return sorted(point for point in points if point.startswith(folder.rstrip("/") + "/"))
