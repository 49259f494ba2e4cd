"""Tells subscribers how a running trial looks: a look a second, which costs the trial nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

from autotune.model.events import OnEvent, TrialProgress
from autotune.model.gauges import Gauges, TrialPhase
from autotune.runner.runner import Run

TELL_EVERY_S = 1.0
"""Between two looks that are told."""


class ProgressTeller:
    """Looks at whatever runs.

    Args:
        on_event: Told of every look.
        now: The monotonic clock.
    """

    def __init__(self, on_event: OnEvent, now: Callable[[], float] = time.monotonic) -> None:
        self._on_event, self._now = on_event, now
        self._told_at = -TELL_EVERY_S

    def waits(self) -> None:
        """Tells that a trial waits for a quiet machine."""
        self._on_event(TrialProgress(gauges=Gauges(phase=TrialPhase.WAITING)))

    def look(self, run: Run) -> None:
        """Tells how a run looks, where that is due."""
        if self._now() - self._told_at < TELL_EVERY_S:
            return
        gauges = run.gauges()
        if gauges is not None:
            self._told_at = self._now()
            self._on_event(TrialProgress(gauges=gauges))
