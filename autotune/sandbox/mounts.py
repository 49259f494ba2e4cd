"""What is mounted, as this process sees it. Standard library only."""

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
"""Kinds of file systems that hold no files of anybody's, but the kernel's."""


class Mount(NamedTuple):
    """One mount."""

    number: int
    """Of the mount, not of its file system."""
    point: str
    """Where it is."""
    kind: str
    """Of its file system."""
    is_writable: bool
    """Whether files can be written by way of it."""

    @property
    def is_special(self) -> bool:
        """Whether it holds nobody's files."""
        return self.kind in SPECIAL


def mounted(table: Path = Path("/proc/self/mountinfo")) -> list[Mount]:
    """All mounts, those out of sight among them, ordered by path, and where there are several by time."""
    try:
        lines = table.read_bytes().splitlines()
    except OSError:
        return []
    return sorted(map(_read, lines), key=lambda mount: mount.point)


def _read(line: bytes) -> Mount:
    words = line.split()
    dash = words.index(b"-")
    # Space, tab, newline and backslash are written as three octal digits there.
    point = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), words[4])
    is_writable = b"rw" in words[5].split(b",") and b"rw" in words[dash + 3].split(b",")
    return Mount(int(words[0]), os.fsdecode(point), words[dash + 1].decode(errors="replace"), is_writable)


def in_sight(mounts: list[Mount]) -> list[Mount]:
    """Those of the mounts that a path leads to: nothing is mounted over them, or over a folder above them."""
    return [mount for mount in mounts if _number_at(mount.point) == mount.number]


def _number_at(point: str) -> int | None:
    """Number of the mount that a path leads to; None where the path cannot be looked at."""
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
    """Mount points strictly inside `folder`, in order of their paths, so that outer ones come first."""
    points = {mount.point for mount in mounted()}
    return sorted(point for point in points if point.startswith(folder.rstrip("/") + "/"))
