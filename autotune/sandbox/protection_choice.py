"""Choice of the protection of the user's files, by the user's wish and the system's permission."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autotune.protocol.protection import BEST, Protection, ProtectionWish
from autotune.sandbox import landlock, layer_permission
from autotune.sandbox.sandbox_error import SandboxError

IN_A_CONTAINER = "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --cap-add SYS_ADMIN"
"""Options for overlay mounts in a container. Docker's default profile permits Landlock since Docker 23 (Linux 5.13)."""
REMEDY = (
    "Run it on Linux 5.13 or newer, in a container by Docker 23 or newer, where Landlock needs no option; or permit "
    f"overlay mounts: {IN_A_CONTAINER}. With --unprotected the search goes on: writes from Python are redirected then, "
    "others reach your files, and what they changed or removed is named."
)
"""Advice for systems with neither overlay mounts nor Landlock."""


def is_landlock_permitted() -> bool:
    """Whether this kernel permits Landlock."""
    return landlock.version() > 0


def choose(wish: ProtectionWish, scratch: Path, needed: Sequence[Path] = ()) -> Protection:
    """The protection of a search: as wished, otherwise the best on this system.

    Args:
        wish: The user's wish.
        scratch: A folder of ours for trying overlay mounts.
        needed: Folders that a script must be able to write to; layers without these give way to Landlock.

    Raises:
        SandboxError: The system does not permit the wish, or permits nothing and the user has not said to go on.
        OSError: `scratch` cannot be written.
    """
    # A user who asks for layers gets layers, and can name read-only folders by --writable.
    needed = needed if wish.mode == BEST else ()
    if wish.mode in (BEST, Protection.LAYERS) and layer_permission.is_permitted(scratch, needed):
        return Protection.LAYERS
    if wish.mode in (BEST, Protection.LANDLOCK) and is_landlock_permitted():
        return Protection.LANDLOCK
    if wish.mode == Protection.NONE or (wish.mode == BEST and wish.is_unprotected):
        return Protection.NONE
    if wish.mode == BEST:
        raise SandboxError(
            "This system permits neither overlay mounts nor Landlock, so trials could change your files.", REMEDY
        )
    what = "overlay mounts" if wish.mode == Protection.LAYERS else "Landlock"
    raise SandboxError(
        f"This system does not permit {what}, which --protection {wish.mode} asks for.",
        "Leave --protection away to have the best that it permits; autotune doctor says what that is.",
    )
