"""Tells subscribers the progress of a running trial once a second, at no cost for the trial."""

from __future__ import annotations

import time
from collections.abc import Callable

from autotune.model.events import OnEvent, TrialProgress
from autotune.model.gauges import Gauges, TrialPhase
from autotune.runner.runner import Run

EVENT_EVERY_S = 1.0
"""Least time between two events, in seconds."""


class ProgressTeller:
    """Tells the progress of the current run.

    Args:
        on_event: Receives the progress.
        now: The monotonic clock, in seconds.
    """

    def __init__(self, on_event: OnEvent, now: Callable[[], float] = time.monotonic) -> None:
        self._on_event, self._now = on_event, now
        self._last_event_at = -EVENT_EVERY_S

    def waits(self) -> None:
        """Tells of a trial that waits for a quiet machine."""
        self._on_event(TrialProgress(gauges=Gauges(phase=TrialPhase.WAITING)))

    def look(self, run: Run) -> None:
        """Tells the progress of a run, at most once a second."""
        if self._now() - self._last_event_at < EVENT_EVERY_S:
            return
        gauges = run.gauges()
        if gauges is not None:
            self._last_event_at = self._now()
            self._on_event(TrialProgress(gauges=gauges))
