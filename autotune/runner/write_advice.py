"""Advice on a write that the layers of a trial refused, by what the script printed. It is no part of any verdict."""

from __future__ import annotations

import errno
import re
from pathlib import Path

from autotune.sandbox.kept_whole import LARGE_BYTES
from autotune.units import format_bytes

WHY = {
    errno.EROFS: "is read-only in trials;",
    errno.EOVERFLOW: "belongs to another user or group, and the system lays no layer over it;",
}
"""Ends of sentences, by the number of the error."""


def advice_on_refused_write(printed: str) -> str:
    """One sentence that names the place and what to do; empty where nothing was refused.

    Args:
        printed: The end of what a script printed that failed.
    """
    for number, why in WHY.items():
        found = re.search(rf"\[Errno {number}\][^\n]*?: ['\"]([^'\"\n]+)['\"]", printed)
        if found is not None:
            return f"{_what(found[1])} {why} --writable {found[1]} lets trials write there for real."
    return ""


def _what(path: str) -> str:
    try:
        size = Path(path).stat().st_size
    except OSError:
        return path
    if size < LARGE_BYTES:
        return path
    return f"{path} ({format_bytes(size)}), which would be copied whole when it is opened for update (open it to read),"
