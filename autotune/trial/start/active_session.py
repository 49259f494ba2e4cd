"""The hand-over from a trial to `autotune.load`: the session that is active in this process, if there is one.

The trial's start-up sets `session` before the user's code runs; the public API reads it. This module imports neither
torch nor the rest of the room, because a training job outside a search imports it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from autotune.settings import Group, Settings, Value


class TrialSession(Protocol):
    """What a trial offers to a script that applies settings itself."""

    @property
    def settings(self) -> Settings | None:
        """Settings to apply; None in the probe and the baseline, where the defaults of the call hold."""

    def claim(self, group: Group) -> None:
        """Tells that the script applies this group itself: its seams stand down and only observe."""

    def declare_knobs(self, defaults: Mapping[str, str]) -> None:
        """Tells the script's own knobs and the defaults in its call, as text."""

    def observe(self, field: str, value: Value) -> None:
        """Tells the value of a setting that is in force."""


session: TrialSession | None = None
"""The session of this process; None outside a search. Read it as `active.session`, it is set after import."""
