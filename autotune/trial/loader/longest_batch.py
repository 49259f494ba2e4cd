"""Trains on the longest of many batches, at the end of a final: a short window rarely meets the longest."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from autotune.trial.loader.batch_source import MAX_AHEAD, BatchSource
from autotune.trial.torch.batch_structure import batch_bytes

NUM_STEPS = 1 + MAX_AHEAD
"""Steps on the longest batch: the script may hold earlier batches."""
READ_S = 1.0
MOST_BATCHES = 512
"""Seconds and batches of the look: reading takes no training, and every final looks."""


class LongestBatch:
    """Reads further batches after the window, and gives the longest to the script for some steps.

    Args:
        source: The source of the script's batches.
        begins: Called before the steps: from here on an error counts against the settings.
    """

    def __init__(self, source: BatchSource, begins: Callable[[], None]) -> None:
        self.num_read = 0
        """Further batches read."""
        self.factor: float | None = None
        """Bytes of the longest batch as a multiple of the mean; None before the step, and without further batches."""
        self._source, self._begins = source, begins
        self._num_left = NUM_STEPS

    def begin(self) -> None:
        """Reads batches for `READ_S` at most, and lets the script train on the longest."""
        self._begins()
        longest: Any = None
        most_bytes = all_bytes = 0
        ends_at = time.monotonic() + READ_S
        while self.num_read < MOST_BATCHES and time.monotonic() < ends_at:
            try:
                batch = self._source.further_batch()
            except Exception:  # the end of the epoch, or a broken batch
                break
            num_bytes = batch_bytes(batch)
            self.num_read += 1
            all_bytes += num_bytes
            if num_bytes > most_bytes:
                longest, most_bytes = batch, num_bytes
        if longest is not None:
            self.factor = most_bytes * self.num_read / all_bytes
            self._source.give(longest)

    def stepped(self) -> bool:
        """Notes an optimizer step; True after a step on the longest batch."""
        self._num_left -= 1
        return self._num_left <= 0
