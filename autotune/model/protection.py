"""How the user's files are protected from what trials write."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Protection(StrEnum):
    """What stands between a trial and the user's files, best first."""

    LAYERS = "layers"
    """Overlay mounts: the trial writes where it likes, to a layer of its own."""
    LANDLOCK = "landlock"
    """Writes from Python go to the trial's folder; all others are refused by the kernel."""
    NONE = "none"
    """Writes from Python go to the trial's folder; all others reach the user's files, and are named afterwards."""


BEST = "auto"
"""Asks for the best protection that the system permits."""
SENTENCES = {
    Protection.LAYERS: "copy-on-write layers; whatever a trial writes goes to a layer of its own",
    Protection.LANDLOCK: "Landlock; writes from Python go to a folder of the trial's own, all others are refused",
    Protection.NONE: "none; writes from Python go to a folder of the trial's own, all others reach your files",
}
"""What each mode means, for people."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProtectionWish:
    """What the user said of the protection of files."""

    mode: str = BEST
    """`auto`, or the name of a Protection."""
    is_unprotected: bool = False
    """The search goes on where the system permits neither layers nor Landlock."""
    writable: tuple[str, ...] = ()
    """Places that trials may write to for real; relative to the working directory."""
