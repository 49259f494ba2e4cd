"""What a trial whose writes are redirected, and not mounted over, may write to: from Python, and by the kernel's leave.

From Python every folder of the machine is covered. What evades Python is refused by Landlock where the system has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

NEVER = ("dev", "proc", "sys")
"""Folders of devices and of the kernel, in which nothing is a file of the user's."""


def top_folders(root: Path = Path("/")) -> list[str]:
    """The folders of the machine that hold files: all in the root folder but links and those of the kernel."""
    try:
        found = sorted(path for path in root.iterdir() if path.name not in NEVER)
    except OSError:
        return []
    return [str(path) for path in found if path.is_dir() and not path.is_symlink()]


def redirection(layers: Sequence[Path], *, own: Sequence[Path]) -> dict[str, list[str]]:
    """The variable of a trial's processes by which their writes are redirected (`autotune.trial.redirect`).

    Args:
        layers: Folders of the layers, nearest first; the first one is written to.
        own: Folders and files that mean what they say: the trial's own, and those that the user gave it.
    """
    return {
        "covered": top_folders(),
        "spared": [str(path) for path in own],
        "layers": [str(path) for path in layers],
    }
