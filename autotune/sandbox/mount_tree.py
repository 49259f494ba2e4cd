"""The tree of mounts of a sandboxed process, while the tree is put together. Standard library only."""

from __future__ import annotations

import os
from contextlib import suppress

from autotune.sandbox import namespaces
from autotune.sandbox.mounts import in_sight, mounted
from autotune.sandbox.namespaces import MS_BIND, MS_REC


class MountTree:
    """The future root of this process.

    Args:
        root: An empty folder for the tree.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        everything = mounted()
        self.mounts = {mount.point: mount for mount in in_sight(everything)}
        """The system's mounts within reach of a path, by mount point."""
        self._points = frozenset(mount.point for mount in everything)

    def at(self, path: str) -> str:
        """The place of a path while the tree is put together."""
        return self.root + path.rstrip("/") if path != "/" else self.root

    def is_mount_point(self, path: str) -> bool:
        """Whether a file system is mounted at a path, within reach or hidden by another mount."""
        return path in self._points

    def has_mounts_below(self, path: str) -> bool:
        """Whether a file system is mounted inside a folder."""
        return any(point.startswith(path.rstrip("/") + "/") for point in self._points)

    def mount_of(self, path: str) -> str:
        """The mount point of the file system of a path."""
        return max((point for point in self.mounts if is_inside(path, point)), key=len, default="/")

    def bind(self, path: str, *, is_writable: bool, is_recursive: bool = False) -> None:
        """Shows the system's file or folder at a path; does nothing without a place for the path.

        Args:
            path: A real path.
            is_writable: Whether writes are real; otherwise the path is read-only.
            is_recursive: Whether the mounts below the path come along.

        Raises:
            OSError: The system does not permit the mount.
        """
        place = self.at(path)
        if not os.path.lexists(place):
            return
        namespaces.mount(path, place, None, MS_BIND | (MS_REC if is_recursive else 0))
        if is_writable:
            return
        inner = [point for point in self.mounts if point.startswith(path.rstrip("/") + "/")] if is_recursive else []
        for point in (path, *sorted(inner)):
            with suppress(FileNotFoundError, PermissionError if point != path else FileNotFoundError):
                namespaces.make_read_only(self.at(point))


def is_inside(path: str, folder: str) -> bool:
    """Whether a path is a folder, or lies below the folder."""
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")
