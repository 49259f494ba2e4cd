"""Read-only files of trials: the interpreter's libraries, and files too large for a copy.

A library outside of the layers keeps its identity: under layers of its own a forked process would load a second copy of
a loaded library. The kernel copies a whole file into the layer before the first change, unless the file system shares
blocks between files.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from autotune.sandbox.layer_folders import contents
from autotune.sandbox.redirection.real_places import FICLONE, is_large

MAX_ENTRIES = 20_000
"""Most entries of the user's folders to examine."""
MAX_NAMED = 500
LIBRARIES = ("lib", "lib64")
SYSTEM = ("/usr", "/usr/local", "/")


def libraries(python: str) -> tuple[str, ...]:
    """Folders with the libraries of the system, of this interpreter and of another interpreter; real paths, each once.

    Args:
        python: The other interpreter, by name or path; any other program is fine.
    """
    found = Path(shutil.which(python) or python).absolute()
    prefixes = {*SYSTEM, sys.prefix, sys.base_prefix, str(found.parent.parent), str(found.resolve().parent.parent)}
    folders = (Path(prefix, name) for prefix in prefixes for name in LIBRARIES)
    real = {str(folder.resolve()) for folder in folders if folder.is_dir()}
    return tuple(sorted(path for path in real if not any(path.startswith(f"{other}/") for other in real)))


def large_files(folders: Iterable[Path], scratch: Path) -> tuple[str, ...]:
    """Real paths of files too large for a copy at the first update.

    The folders take turns, level by level, so a folder of many files leaves room for the others.

    Args:
        folders: Folders to search; links inside are not followed.
        scratch: A folder of ours, on the file system of the layers.
    """
    found: dict[str, None] = {}
    queue, left = deque(map(str, folders)), MAX_ENTRIES
    seen = {*queue, str(scratch)}
    while queue and left > 0 and len(found) < MAX_NAMED:
        with suppress(OSError), os.scandir(queue.popleft()) as entries:
            for entry in entries:
                left -= 1
                if entry.is_dir(follow_symlinks=False):
                    if entry.path not in seen:
                        seen.add(entry.path)
                        queue.append(entry.path)
                elif is_large(entry.stat(follow_symlinks=False)) and not _shares_blocks(Path(entry.path), scratch):
                    found[entry.path] = None
    return tuple(found)


def large_copies(layer: Path) -> tuple[Path, ...]:
    """Real paths of the user's large files with copies in a layer of the probe."""
    found = []
    for top, path in contents(layer):
        for place, _, names in os.walk(top):
            for name in names:
                real = Path(path, Path(place, name).relative_to(top))
                with suppress(OSError):
                    if is_large(Path(place, name).lstat()) and is_large(real.lstat()):
                        found.append(real)
    return tuple(found)


def _shares_blocks(path: Path, scratch: Path) -> bool:
    """Whether a copy of the file beside the layers would share the file's blocks."""
    copy = scratch / "cloned"
    try:
        with path.open("rb") as source, copy.open("wb") as target:
            fcntl.ioctl(target.fileno(), FICLONE, source.fileno())
    except OSError:
        return False
    finally:
        copy.unlink(missing_ok=True)
    return True
