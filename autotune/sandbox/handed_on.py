"""Choice of the probe's files for later trials: downloads and caches, and no outputs.

A file counts as an output unless the probe read the file again: a checkpoint, a folder of a run. With an output in
place, a trial would find an earlier run, unlike the script's first start. A folder made by the probe is handed on
whole, as soon as the probe read any file inside.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from autotune.sandbox.covered_folders import CACHE_VARIABLES
from autotune.sandbox.layer_folders import contents, is_opaque
from autotune.sandbox.own_files import remove_links
from autotune.sandbox.redirection.redirect_layers import FILES, GONE
from autotune.sandbox.tree_removal import remove_tree

ST_NOATIME = 1024
AT_FDCWD, AT_SYMLINK_NOFOLLOW = -100, 0x100
STATX_TIMES = 0x20 | 0x800
"""Times of the last reading and of the making."""
BYTES_OF_STATX, AT_ATIME, AT_BTIME = 256, 64, 80
BYTECODE = "__pycache__"


def drop_outputs(layer: Path, environment: Mapping[str, str] = os.environ, *, keeps_read: bool = True) -> int:
    """Removes outputs from an unused layer; the number of removed files and folders.

    Args:
        layer: The layer.
        environment: Of the script; names folders of caches.
        keeps_read: Whether files that the probe read again stay; caches stay in any case.
    """
    if not layer.is_dir() or (keeps_read and os.statvfs(layer).f_flag & ST_NOATIME):
        return 0  # Without a layer, and on a file system that notes no reading.
    caches = cache_folders(environment)
    num_dropped = 0
    for top, path in contents(layer):
        for unit, real in _units(top, Path(path), is_opaque):
            if not _is_cache(real, caches) and not (keeps_read and _was_read(unit)):
                remove_tree(unit)
                num_dropped += 1
    return num_dropped


def drop_redirected_outputs(
    layer: Path, environment: Mapping[str, str] = os.environ, *, keeps_read: bool = True
) -> int:
    """Removes outputs from an unused layer of redirected writes; arguments and result of `drop_outputs`."""
    if not layer.is_dir() or (keeps_read and os.statvfs(layer).f_flag & ST_NOATIME):
        return 0
    caches = cache_folders(environment)
    files, gone = layer / FILES, layer / GONE
    remove_links((files, gone))
    num_dropped = 0
    for unit, real in _units(files, Path("/"), lambda _, folder: (gone / folder.relative_to(files)).is_file()):
        if not _is_cache(real, caches) and not (keeps_read and _was_read(unit)):
            remove_tree(unit)
            num_dropped += 1
    for place, _, names in os.walk(gone):
        for mark in (Path(place, name) for name in names):
            below = mark.relative_to(gone)
            if not _is_cache(Path("/", below), caches) and not os.path.lexists(files / below):
                mark.unlink()
                num_dropped += 1
    return num_dropped


def _is_cache(real: Path, caches: Sequence[Path]) -> bool:
    return BYTECODE in real.parts or any(real == cache or cache in real.parents for cache in caches)


def cache_folders(environment: Mapping[str, str]) -> Sequence[Path]:
    """Folders of caches; real paths.

    All hidden folders of the home folder count as caches.
    """
    home = Path(environment.get("HOME") or os.path.expanduser("~")).resolve()  # noqa: PTH111  pathlib may raise
    named = [Path(value).resolve() for name in CACHE_VARIABLES if (value := environment.get(name, "")).startswith("/")]
    try:
        hidden = [home / name for name in os.listdir(home) if name.startswith(".")]  # noqa: PTH208
    except OSError:
        hidden = []
    return [*named, home / ".cache", *hidden]


def _units(folder: Path, real: Path, is_new: Callable[[Path, Path], bool]) -> Iterator[tuple[Path, Path]]:
    """Entries that the probe made, changed or removed, each with the real path; of new entries the outermost folder.

    Args:
        folder: A folder of the layer.
        real: The folder's real path.
        is_new: Whether the probe removed a folder and made the folder again; called with two folders of the layer.
    """
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        there = real / entry.name
        is_folder = entry.is_dir() and not entry.is_symlink()
        if is_folder and there.is_dir() and not is_new(folder, entry):
            yield from _units(entry, there, is_new)
        else:
            yield entry, there


def _was_read(unit: Path) -> bool:
    """Whether a file, or any file of a folder, was read after the making."""
    if unit.is_symlink() or not unit.is_dir():
        return _is_read(unit)
    return any(_is_read(Path(place, name)) for place, _, names in os.walk(unit) for name in names)


def _is_read(path: Path) -> bool:
    """Whether a file was read after the making; True if the system does not know."""
    try:
        status = path.lstat()
    except OSError:
        return False
    if stat.S_ISCHR(status.st_mode):
        return False  # The mark of a removed file.
    times = _times(path)
    return times is None or times[0] > times[1]


def _times(path: Path) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Times of the last reading and of the making, as seconds and nanoseconds; None if the system does not know."""
    statx = getattr(ctypes.CDLL(None), "statx", None)
    said = (ctypes.c_char * BYTES_OF_STATX)()
    if statx is None or statx(AT_FDCWD, os.fsencode(path), AT_SYMLINK_NOFOLLOW, STATX_TIMES, said) != 0:
        return None
    if int.from_bytes(said.raw[:4], sys.byteorder) & STATX_TIMES != STATX_TIMES:
        return None
    return _time(said.raw, AT_ATIME), _time(said.raw, AT_BTIME)


def _time(said: bytes, at: int) -> tuple[int, int]:
    return int.from_bytes(said[at : at + 8], sys.byteorder, signed=True), int.from_bytes(
        said[at + 8 : at + 12], sys.byteorder
    )
