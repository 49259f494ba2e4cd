"""Commands of root's tests run as an ordinary user, who has no name and owns nothing but what he is given."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

UID, GID = 54321, 54322
FOREIGN_GID = 54323
SHOW = """
set -e
hidden="$1"; shift
kept="$1"; shift
if [ -n "$hidden" ]; then
    away=$(mktemp -d /run/autotune-test-XXXXXX)
    mount --bind "$kept" "$away"
    mount -t tmpfs -o mode=755 none "$hidden"
    mkdir -p "$kept"
    mount --bind "$away" "$kept"
    umount -l "$away"
    rmdir "$away"
fi
exec setpriv --reuid="$1" --regid="$2" --groups="$3" --inh-caps=-all -- sh -c 'shift 3; exec "$@"' sh "$@"
"""


def why_not() -> str:
    """Why no command can be run as another user here; empty when one can."""
    if os.geteuid() != 0:
        return "only root can become another user"
    missing = [name for name in ("unshare", "setpriv", "mount") if shutil.which(name) is None]
    return f"this system has no {missing[0]}" if missing else ""


def command_as_user(command: Sequence[str], *, groups: Sequence[int] = ()) -> list[str]:
    """The command, run as an ordinary user who can read this interpreter, wherever that lies.

    Args:
        command: What to run.
        groups: Further groups that the user is in.
    """
    kept = Path(sys.base_prefix).resolve()
    hidden = next((str(folder) for folder in reversed(kept.parents) if not folder.stat().st_mode & 0o001), "")
    numbers = ",".join(map(str, (GID, *groups)))
    return ["unshare", "--mount", "sh", "-c", SHOW, "sh", hidden, str(kept), str(UID), str(GID), numbers, *command]
