"""The file system with the user's dataset, from the kernel's table of mounts."""

from __future__ import annotations

import re
from pathlib import Path

TABLE = Path("/proc/self/mountinfo")


def mount_of(path: str, table: Path = TABLE) -> str:
    """Kind and source of the file system of a path, such as `nfs4 on server:/data`; empty when unknown.

    Args:
        path: An absolute path.
        table: The table of mounts of this process.
    """
    try:
        lines = table.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    best, found = -1, ""
    for line in lines:
        words = line.split()
        if not path or "-" not in words:
            continue
        # The kernel writes space, tab, newline and backslash as three octal digits.
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), words[4])
        if len(point) >= best and Path(path).is_relative_to(point):
            kind, source = words[words.index("-") + 1 :][:2]
            best, found = len(point), f"{kind} on {source}"
    return found
