"""Places of a trial with redirected writes: every folder of the machine is covered but the trial's own.

Landlock refuses writes past Python where the kernel has Landlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

NEVER = ("dev", "proc", "sys")
"""Folders of devices and of the kernel, without files of the user's."""


def top_folders(root: Path = Path("/")) -> list[str]:
    """All folders in the root folder except links and folders of the kernel."""
    try:
        found = sorted(path for path in root.iterdir() if path.name not in NEVER)
    except OSError:
        return []
    return [str(path) for path in found if path.is_dir() and not path.is_symlink()]


def redirection(layers: Sequence[Path], *, own: Sequence[Path]) -> dict[str, list[str]]:
    """Plan for the redirection of a trial's writes, as `autotune.sandbox.redirect` reads the plan from the environment.

    Args:
        layers: Folders of the layers, nearest first; writes go to the first.
        own: Folders and files without redirection: the trial's own, and the user's writable places.
    """
    return {
        "covered": top_folders(),
        "spared": [str(path) for path in own],
        "layers": [str(path) for path in layers],
    }
