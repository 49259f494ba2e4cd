"""Why a script failed that Landlock refused a write: the place, and what lets the script write there."""

from __future__ import annotations

import re

from autotune.model.protection import Protection

DENIED = re.compile(r"Permission denied|Operation not permitted|Invalid cross-device link|errno ?=? ?(1|13|18)\b", re.I)
"""What the C library, Python, HDF5 and programs print of EPERM, EACCES and EXDEV."""
OF_DATABASES = re.compile(r"unable to open database file|attempt to write a readonly database")
"""What SQLite says of both, without the place."""
QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")
BEFORE_DENIED = re.compile(r"(\S+): (?:Permission denied|Operation not permitted|Invalid cross-device link)")


def refusal(protection: Protection, *texts: str) -> str:
    """A sentence on a write that Landlock probably refused; empty where nothing speaks for that.

    Args:
        protection: What keeps the user's files.
        texts: What the script reported and printed, the most telling first.
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
    """The path that a line is about; empty where it names none."""
    quoted = [first or second for first, second in QUOTED.findall(line)]
    if quoted:
        return str(quoted[-1])
    before = BEFORE_DENIED.search(line)
    return str(before[1]).strip("'\"") if before is not None else ""
