"""What of the probe's layer later trials see: downloads and caches, and no outputs.

What the probe made counts as an output unless it read it again: a checkpoint, a folder of a run. With such an output in
its place, a trial would find a run of its own that is not there for a script's first start. What belongs together is
handed on together: a folder that the probe made, with all in it, as soon as one file of it was read.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from autotune.sandbox.covered_folders import CACHE_VARIABLES
from autotune.sandbox.layer_folders import contents, is_opaque
from autotune.sandbox.tree_removal import remove_tree

ST_NOATIME = 1024
AT_FDCWD, AT_SYMLINK_NOFOLLOW = -100, 0x100
STATX_TIMES = 0x20 | 0x800
"""Times of the last reading and of the making."""
BYTES_OF_STATX, AT_ATIME, AT_BTIME = 256, 64, 80
BYTECODE = "__pycache__"


def drop_outputs(layer: Path, environment: Mapping[str, str] = os.environ, *, keeps_read: bool = True) -> int:
    """Removes outputs from a layer that nobody uses; how many files and folders went.

    Args:
        layer: The layer.
        environment: Of the script; says where caches are.
        keeps_read: What was read again stays; otherwise caches alone do.
    """
    if keeps_read and os.statvfs(layer).f_flag & ST_NOATIME:
        return 0  # Nobody knows what was read there.
    caches = cache_folders(environment)
    num_dropped = 0
    for top, path in contents(layer):
        for unit, real in _units(top, Path(path)):
            is_cache = BYTECODE in unit.parts or any(real == cache or cache in real.parents for cache in caches)
            if not is_cache and not (keeps_read and _was_read(unit)):
                remove_tree(unit) if unit.is_dir() or unit.is_symlink() else unit.unlink()
                num_dropped += 1
    return num_dropped


def cache_folders(environment: Mapping[str, str]) -> Sequence[Path]:
    """Where programs keep what they would download or compute again; real paths.

    All hidden folders of the home folder count as such.
    """
    home = Path(environment.get("HOME") or os.path.expanduser("~")).resolve()  # noqa: PTH111  pathlib may raise
    named = [Path(value).resolve() for name in CACHE_VARIABLES if (value := environment.get(name, "")).startswith("/")]
    try:
        hidden = [home / name for name in os.listdir(home) if name.startswith(".")]  # noqa: PTH208
    except OSError:
        hidden = []
    return [*named, home / ".cache", *hidden]


def _units(folder: Path, real: Path) -> Iterator[tuple[Path, Path]]:
    """What the probe made, changed or removed, each with its real path: the outermost folder of what is new."""
    for entry in sorted(folder.iterdir()):
        there = real / entry.name
        is_folder = entry.is_dir() and not entry.is_symlink()
        if is_folder and there.is_dir() and not is_opaque(folder, entry):
            yield from _units(entry, there)
        else:
            yield entry, there


def _was_read(unit: Path) -> bool:
    """Whether any file in it was read after it was made."""
    if unit.is_symlink() or not unit.is_dir():
        return _is_read(unit)
    return any(_is_read(Path(place, name)) for place, _, names in os.walk(unit) for name in names)


def _is_read(path: Path) -> bool:
    """Whether a file was read after it was made; where the system does not say, it may have been."""
    try:
        status = path.lstat()
    except OSError:
        return False
    if stat.S_ISCHR(status.st_mode):
        return False  # The mark of something that was removed.
    times = _times(path)
    return times is None or times[0] > times[1]


def _times(path: Path) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """When a file was last read and when it was made, as seconds and nanoseconds; None where the system knows not."""
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
