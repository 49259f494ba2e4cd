"""Places of a trial with redirected writes: every folder of the machine is covered but the trial's own.

Landlock refuses writes past Python where the kernel has Landlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autotune.protocol.supervision import RedirectionPlan

SHARED_MEMORY = "/dev/shm"
"""Libraries reach the system's shared memory past Python."""
NEVER = ("dev", "proc", "sys")
"""Folders of devices and of the kernel, without files of the user's."""


def top_folders(root: Path = Path("/")) -> list[str]:
    """All folders in the root folder except links and folders of the kernel."""
    try:
        found = sorted(path for path in root.iterdir() if path.name not in NEVER)
    except OSError:
        return []
    return [str(path) for path in found if path.is_dir() and not path.is_symlink()]


def redirection(layers: Sequence[Path], *, own: Sequence[Path]) -> RedirectionPlan:
    """Plan for the redirection of a trial's writes.

    Args:
        layers: Folders of the layers, nearest first; writes go to the first.
        own: Folders and files without redirection: the trial's own, and the user's writable places.
    """
    return RedirectionPlan(
        covered=(*top_folders(), SHARED_MEMORY),
        layers=tuple(str(path) for path in layers),
        spared=tuple(str(path) for path in own),
    )
