"""How the ranks of one trial change phase at the same step, without a message between them.

Ranks that synchronise gradients run in lockstep, so none is more than one optimizer step ahead. Rank 0 decides and
writes, into a small file that all have mapped, the step at which the change happens: a little in the future. Every
rank, rank 0 included, acts when its own count reaches that number.
"""

from __future__ import annotations

import mmap
import os
from enum import IntEnum
from pathlib import Path

MAX_STEPS_AHEAD = 2
"""Steps that a rank's host may have queued beyond what its device has done. Without a bound a rank that waits for
nothing queues collectives far beyond the step at which the others stop, and its device waits for them for ever."""
LEAD_STEPS = MAX_STEPS_AHEAD + 2
"""Optimizer steps between decision and change: what a host may be ahead, one for lockstep, one for a rank that already
looked."""

_SLOT_BYTES = 8


class Mark(IntEnum):
    """What is agreed on, and what the tuner may look at; each is one slot of eight bytes."""

    STEPS = 0
    """Optimizer steps that rank 0 has done."""
    COMPUTE = 1
    OPEN = 2
    WINDOW = 3
    STOP = 4
    CONVERGED = 5
    """1 when the window ends because it is narrow enough."""
    RESTART = 6
    """1 when the window's end is followed by the start of a new epoch."""
    SAMPLES = 7
    """Samples of rank 0 up to its last block's end, for whoever watches."""
    WAIT_US = 8
    """Microseconds for which rank 0 has waited for data until then."""
    OBSERVED = 9
    """Step at which the look at the loop is over."""
    RACED = 10
    """1 when the trial ends because it cannot be the fastest."""
    REPORTED = 11
    """1 when a process that trained has said its last word: nobody waits long for its end."""


class Progress:
    """The shared file. A slot of 0 means that nothing is written there yet."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, len(Mark) * _SLOT_BYTES)
            self._slots = memoryview(mmap.mmap(descriptor, len(Mark) * _SLOT_BYTES)).cast("q")
        finally:
            os.close(descriptor)

    def get(self, mark: Mark) -> int:
        """Value of a slot."""
        return self._slots[mark]

    def put(self, mark: Mark, value: int) -> None:
        """Writes a slot."""
        self._slots[mark] = value


class Agreement:
    """Whether a phase change happens now, the same answer at the same step on every rank."""

    def __init__(self, progress: Progress, rank: int, world_size: int) -> None:
        self._progress = progress
        self._leads = rank == 0
        self._lead_steps = LEAD_STEPS if world_size > 1 else 0
        self.is_shared = world_size > 1
        """Whether there are other ranks."""

    def reached(self, mark: Mark, *, wanted: bool, num_steps: int, since: int) -> bool:
        """Whether the change to `mark` happens at this step.

        Args:
            mark: The change.
            wanted: Whether this rank would change now; only rank 0's wish counts.
            num_steps: Optimizer steps that this rank has done.
            since: Steps at the begin of the running phase: what was agreed for an earlier one does not count.
        """
        at = self._progress.get(mark)
        if at <= since and self._leads and wanted:
            at = num_steps + self._lead_steps
            self._progress.put(mark, at)
        return since < at <= num_steps

    def is_agreed(self, mark: Mark, *, since: int) -> bool:
        """Whether the step of the change to `mark` is known: what goes with it must have been told before."""
        return self._progress.get(mark) > since

    def tell(self, mark: Mark) -> None:
        """Tells the other ranks something that holds from the next change on."""
        if self._leads:
            self._progress.put(mark, 1)

    def is_told(self, mark: Mark) -> bool:
        """Whether rank 0 has told it."""
        return self._progress.get(mark) != 0

    def done(self, num_steps: int, *, num_samples: float = 0.0, wait_s: float = 0.0) -> None:
        """Tells the tuner how far the trial is, all counted from its beginning."""
        if self._leads:
            self._progress.put(Mark.STEPS, num_steps)
            self._progress.put(Mark.SAMPLES, round(num_samples))
            self._progress.put(Mark.WAIT_US, round(1e6 * wait_s))
