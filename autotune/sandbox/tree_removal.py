"""Removal of folders that overlay mounts or scripts left without permissions. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path


def remove_tree(folder: Path) -> None:
    """Removes a folder, or whatever a script put in place of the folder; a link is removed and not followed."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink(missing_ok=True)
        return
    import shutil  # Loads the compression libraries; supervisors rarely remove anything.

    make_removable(folder)
    shutil.rmtree(folder, ignore_errors=True)


def make_removable(folder: Path) -> None:
    """Gives this user all rights over the folders below `folder`."""
    for place, names, _ in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if not path.is_symlink():
                try:
                    path.chmod(0o700)
                except OSError:
                    continue
