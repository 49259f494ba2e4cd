"""Changes the phase of all ranks of a trial at the same step, without messages between ranks.

Ranks that synchronise gradients run in lockstep, at most one optimizer step apart. Rank 0 decides on a change, and
writes a step in the near future into a small file mapped by all ranks. Every rank changes at this step of its own
count.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from autotune.protocol.progress_marks import SLOT_BYTES, Mark

MAX_STEPS_AHEAD = 2
"""Steps that a rank's host may be ahead of its device. Without a bound a rank could queue collectives far beyond the
last step of the other ranks, and its device would wait for ever."""
LEAD_STEPS = MAX_STEPS_AHEAD + 2
"""Optimizer steps between decision and change: MAX_STEPS_AHEAD, a step for the lockstep of ranks, and a step for a rank
that has just read the file."""


class Progress:
    """The shared file; a slot of 0 is not written yet."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, len(Mark) * SLOT_BYTES)
            self._slots = memoryview(mmap.mmap(descriptor, len(Mark) * SLOT_BYTES)).cast("q")
        finally:
            os.close(descriptor)

    def get(self, mark: Mark) -> int:
        """Value of a slot."""
        return self._slots[mark]

    def put(self, mark: Mark, value: int) -> None:
        """Writes a slot."""
        self._slots[mark] = value


class Agreement:
    """Answers whether a phase change happens now, alike at the same step on every rank."""

    def __init__(self, progress: Progress, rank: int, world_size: int) -> None:
        self._progress = progress
        self._leads = rank == 0
        self._lead_steps = LEAD_STEPS if world_size > 1 else 0
        self.is_shared = world_size > 1
        """Whether the trial has more than one rank."""

    def reached(self, mark: Mark, *, wanted: bool, num_steps: int, since: int) -> bool:
        """Whether the change to `mark` happens at this step.

        Args:
            mark: The change.
            wanted: Whether this rank would change now; only rank 0's wish counts.
            num_steps: Optimizer steps that this rank has done.
            since: Steps at the beginning of the running phase; earlier agreements do not count.
        """
        at = self._progress.get(mark)
        if at <= since and self._leads and wanted:
            at = num_steps + self._lead_steps
            self._progress.put(mark, at)
        return since < at <= num_steps

    def is_agreed(self, mark: Mark, *, since: int) -> bool:
        """Whether the step of the change to `mark` is known; announcements about the change come before."""
        return self._progress.get(mark) > since

    def announce(self, mark: Mark) -> None:
        """Announces `mark` to the other ranks when called on rank 0; must precede the agreement on a change."""
        if self._leads:
            self._progress.put(mark, 1)

    def is_announced(self, mark: Mark) -> bool:
        """Whether rank 0 has announced `mark`."""
        return self._progress.get(mark) != 0

    def done(self, num_steps: int, *, num_samples: float = 0.0, wait_s: float = 0.0) -> None:
        """Writes the progress since the beginning of the trial for the tuner."""
        if self._leads:
            self._progress.put(Mark.STEPS, num_steps)
            self._progress.put(Mark.SAMPLES, round(num_samples))
            self._progress.put(Mark.WAIT_US, round(1e6 * wait_s))
