"""The hand-over from a trial to `autotune.load`: the active session of this process.

The trial's start-up sets `session` before the user's code runs; the public API reads it. This module imports neither
torch nor the rest of the room, because a training job outside a search imports it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from autotune.settings import Group, Settings, Value


class TrialSession(Protocol):
    """Interface of a trial for scripts that apply settings themselves."""

    @property
    def settings(self) -> Settings | None:
        """Settings to apply; None in the probe and the baseline, for the defaults of the call."""

    def claim(self, group: Group) -> None:
        """Tells that the script applies this group itself; the group's seams then only observe."""

    def declare_knobs(self, defaults: Mapping[str, str]) -> None:
        """Tells the script's own knobs, and the defaults in the call as text."""

    def observe(self, field: str, value: Value) -> None:
        """Tells the value in force of a setting."""


session: TrialSession | None = None
"""The session of this process, set after the import of this module; None outside a search."""
