"""Advice on a write that the protection of the user's files refused, by the words in a script's output.

The advice is no part of any verdict.
"""

from __future__ import annotations

import errno
import re
from pathlib import Path

from autotune.protocol.protection import Protection
from autotune.sandbox.redirection.real_places import LARGE_BYTES
from autotune.units import format_bytes

DENIED = re.compile(r"Permission denied|Operation not permitted|Invalid cross-device link|errno ?=? ?(1|13|18)\b", re.I)
"""EPERM, EACCES and EXDEV in the words of the C library, Python, HDF5 and programs."""
OF_DATABASES = re.compile(r"unable to open database file|attempt to write a readonly database")
"""SQLite's words for a refused write; SQLite names no place."""
QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")
BEFORE_DENIED = re.compile(r"(\S+): (?:Permission denied|Operation not permitted|Invalid cross-device link)")
WHY = {
    errno.EROFS: "is read-only in trials;",
    errno.EOVERFLOW: "belongs to another user or group, and the system lays no layer over it;",
}
"""Ends of sentences on writes refused by layers, by the number of the error."""


def refused_by_landlock(protection: Protection, *texts: str) -> str:
    """A sentence on a write that Landlock probably refused; empty without signs of a refusal.

    Args:
        protection: Mode in force.
        texts: Reports and output of the script, the most telling first.
    """
    if protection is not Protection.LANDLOCK:
        return ""
    lines = [line for text in texts for line in reversed(text.splitlines())]
    line = next((line for line in lines if DENIED.search(line) or OF_DATABASES.search(line)), None)
    if line is None:
        return ""
    place = _place(line)
    where = f"to write {place!r}" if place else "a place to write"
    return (
        f" Landlock, which protects your files here, may have refused it {where}: past Python, trials write to their "
        f"own folder alone. Let them write for real with --writable {place or 'PATH'}."
    )


def _place(line: str) -> str:
    """Path named in a line; empty without a path."""
    quoted = [first or second for first, second in QUOTED.findall(line)]
    if quoted:
        return str(quoted[-1])
    before = BEFORE_DENIED.search(line)
    return str(before[1]).strip("'\"") if before is not None else ""


def refused_by_layers(printed: str) -> str:
    """A sentence with the place of a write that layers refused, and what to do; empty without signs of a refusal.

    Args:
        printed: End of the output of a failed script.
    """
    for number, why in WHY.items():
        found = re.search(rf"\[Errno {number}\][^\n]*?: ['\"]([^'\"\n]+)['\"]", printed)
        if found is not None:
            return f"{_named(found[1])} {why} --writable {found[1]} lets trials write there for real."
    return ""


def _named(path: str) -> str:
    """The path, with the size and the reason for a large file."""
    try:
        size = Path(path).stat().st_size
    except OSError:
        return path
    if size < LARGE_BYTES:
        return path
    return f"{path} ({format_bytes(size)}), which would be copied whole when it is opened for update (open it to read),"
