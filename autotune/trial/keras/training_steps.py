"""Counts the batches and updates of a Keras training."""

from __future__ import annotations

import threading


class TrainingSteps:
    """Totals for the meter.

    Args:
        num_accumulated: Batches of an update.
    """

    def __init__(self, num_accumulated: int = 1) -> None:
        self.num_backwards = 0
        self.num_steps = self.num_updates = 0
        self.num_skipped = 0
        """Always 0: a skipped update of a scaled loss does not show outside the engine."""
        self.thread = threading.get_ident()
        self._num_accumulated = num_accumulated

    def trained(self, num_batches: int) -> None:
        """Counts batches after a training call."""
        self.num_backwards += num_batches
        self.num_steps = self.num_updates = self.num_backwards // self._num_accumulated
