"""Folders of copy-on-write layers on the disk. Standard library only: the supervisor loads this file.

A layer has one folder per covered path, named by `layer_name`. This folder holds `upper` (the writes below the path),
`work` (the kernel's own) and `path` (a file with the path).
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

UPPER, WORK, PATH = "upper", "work", "path"
OPAQUE_MARKS = ("trusted.overlay.opaque", "user.overlay.opaque")
"""Attributes of a folder that was removed and made again."""


def layer_name(path: str) -> str:
    """Name of the folder for the writes below a path; the same in every layer."""
    encoded = os.fsencode(path)
    return f"{zlib.crc32(encoded):08x}{zlib.adler32(encoded):08x}"


def make_layer_folders(layer: str, path: str) -> tuple[Path, Path]:
    """Makes the folders `upper` and `work` of a layer for a path, and returns both."""
    folder = Path(layer, layer_name(path))
    for name in (UPPER, WORK):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / PATH).write_bytes(os.fsencode(path))
    return folder / UPPER, folder / WORK


def contents(layer: Path) -> Iterator[tuple[Path, str]]:
    """The `upper` folders of a layer, each with the covered path; no link is followed."""
    for folder in sorted(layer.iterdir()) if layer.is_dir() else ():
        parts = (folder, folder / PATH, folder / UPPER)
        if not any(part.is_symlink() for part in parts) and parts[1].is_file() and parts[2].is_dir():
            yield folder / UPPER, os.fsdecode((folder / PATH).read_bytes())


def earlier_folders(layers: Sequence[str], path: str) -> Iterator[tuple[str, bool]]:
    """Folders of earlier layers for a path, nearest first, and whether each folder hides everything below.

    Args:
        layers: Folders of the layers, nearest first; the last folder yielded is the first that hides.
        path: A covered path, or a path below a covered path.
    """
    for layer in layers:
        found = _folder_of(layer, path)
        if found is not None:
            hides = is_opaque(*found)
            yield str(found[1]), hides
            if hides:
                return


def _folder_of(layer: str, path: str) -> tuple[Path, Path] | None:
    """The `upper` folder of a layer over a path, and the path's folder in there; None without such a folder."""
    for place in (Path(path), *Path(path).parents):
        top = Path(layer, layer_name(str(place)), UPPER)
        if top.is_dir():
            found = top / Path(path).relative_to(place)
            return (top, found) if found.is_dir() and not found.is_symlink() else None
    return None


def is_opaque(top: Path, folder: Path) -> bool:
    """Whether a folder of a layer hides the same folder of lower layers.

    A script that removes a folder and makes the folder again leaves an opaque folder.

    Args:
        top: The layer's `upper` folder.
        folder: A folder below `top`.
    """
    while folder != top:
        for name in OPAQUE_MARKS:
            with suppress(OSError):
                if os.getxattr(folder, name) == b"y":
                    return True
        folder = folder.parent
    return False


def is_kept(path: Path) -> bool:
    """Whether a layer has a file, link or folder at a path; False for the kernel's mark of a removed file."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return not (stat.S_ISCHR(status.st_mode) and status.st_rdev == 0)


def copy_mode(source: str, target: Path) -> None:
    """Gives a folder the mode of another folder, and the owner if permitted."""
    status = Path(source).stat()
    with suppress(OSError):
        os.chown(target, status.st_uid, status.st_gid)
    target.chmod(stat.S_IMODE(status.st_mode))


def make_way(path: str, upper: Path, known: str) -> None:
    """Makes the folders from `path` down to `known` in the layer of `path`."""
    there = Path(path)
    for name in Path(known).relative_to(path).parts:
        there, upper = there / name, upper / name
        if not there.is_dir():
            return
        if not upper.is_dir():
            upper.mkdir()
            copy_mode(str(there), upper)
