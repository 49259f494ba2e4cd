"""Protection of the user's files from the writes of trials."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Protection(StrEnum):
    """Modes of protection, best first."""

    LAYERS = "layers"
    """Overlay mounts: all writes of a trial go to the trial's own layer."""
    LANDLOCK = "landlock"
    """Writes from Python go to the trial's folder; all others are refused by the kernel."""
    NONE = "none"
    """Writes from Python go to the trial's folder; all others reach the user's files, and are named afterwards."""


BEST = "auto"
"""Wish for the best mode on the system."""
SENTENCES = {
    Protection.LAYERS: "copy-on-write layers; what a trial writes goes to a layer of its own",
    Protection.LANDLOCK: "Landlock; writes from Python go to a folder of the trial's own, all others are refused",
    Protection.NONE: "none; writes from Python go to a folder of the trial's own, all others reach your files",
}
"""Meaning of each mode, for people."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProtectionWish:
    """The user's wish for the protection of files."""

    mode: str = BEST
    """`auto`, or the name of a Protection."""
    is_unprotected: bool = False
    """Whether the search goes on where the system permits neither layers nor Landlock."""
    writable: tuple[str, ...] = ()
    """Places for real writes of trials; relative to the working directory."""
    keeps_network: bool = False
    """Whether trials have the machine's network after the probe as well."""
