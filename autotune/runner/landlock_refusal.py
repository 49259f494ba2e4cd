"""Reason for a script's failure under Landlock: the refused place, and the option to permit writing there."""

from __future__ import annotations

import re

from autotune.protocol.protection import Protection

DENIED = re.compile(r"Permission denied|Operation not permitted|Invalid cross-device link|errno ?=? ?(1|13|18)\b", re.I)
"""EPERM, EACCES and EXDEV in the words of the C library, Python, HDF5 and programs."""
OF_DATABASES = re.compile(r"unable to open database file|attempt to write a readonly database")
"""SQLite's words for a refused write; SQLite names no place."""
QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")
BEFORE_DENIED = re.compile(r"(\S+): (?:Permission denied|Operation not permitted|Invalid cross-device link)")


def refusal(protection: Protection, *texts: str) -> str:
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
