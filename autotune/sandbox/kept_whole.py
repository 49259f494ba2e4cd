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
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

LARGE_BYTES = 4 << 30
"""A copy of more takes seconds on a fast disk."""
MAX_ENTRIES = 20_000
"""Most entries of the user's folders to examine."""
MAX_NAMED = 500
FICLONE = 0x40049409
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

    Args:
        folders: Folders to search; links inside are not followed.
        scratch: A folder of ours, on the file system of the layers.
    """
    found = []
    left = MAX_ENTRIES
    for folder in folders:
        for place, names, files in os.walk(folder):
            left -= len(names) + len(files)
            found += [str(path) for path in _large(Path(place), files) if not _shares_blocks(path, scratch)]
            if left <= 0 or len(found) >= MAX_NAMED:
                return tuple(found[:MAX_NAMED])
    return tuple(found)


def _large(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    for name in names:
        with suppress(OSError):
            status = (folder / name).lstat()
            if status.st_size >= LARGE_BYTES and status.st_blocks * 512 >= LARGE_BYTES:
                yield folder / name


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
