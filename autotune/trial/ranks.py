"""How the ranks of one trial change phase at the same step, without a message between them.

Ranks that synchronise gradients run in lockstep, so none is more than one optimizer step ahead. Rank 0 decides and
writes, into a small file that all have mapped, the step at which the change happens: a little in the future. Every
rank, rank 0 included, acts when its own count reaches that number.
"""

from __future__ import annotations

import mmap
import os
import struct
from enum import IntEnum
from pathlib import Path

LEAD_STEPS = 2
"""Optimizer steps between decision and change: one for lockstep, one for a rank that already looked."""

_SLOT = struct.Struct("<q")


class Mark(IntEnum):
    """What is agreed on, and what the tuner may look at; each is one slot of eight bytes."""

    STEPS = 0
    """Optimizer steps that rank 0 has done."""
    COMPUTE = 1
    OPEN = 2
    WINDOW = 3
    STOP = 4


class Progress:
    """The shared file. A slot of 0 means that nothing is written there yet."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, len(Mark) * _SLOT.size)
            self._map = mmap.mmap(descriptor, len(Mark) * _SLOT.size)
        finally:
            os.close(descriptor)

    def get(self, mark: Mark) -> int:
        """Value of a slot."""
        return int(_SLOT.unpack_from(self._map, mark * _SLOT.size)[0])

    def put(self, mark: Mark, value: int) -> None:
        """Writes a slot."""
        _SLOT.pack_into(self._map, mark * _SLOT.size, value)


class Agreement:
    """Whether a phase change happens now, the same answer at the same step on every rank."""

    def __init__(self, progress: Progress, rank: int, world_size: int) -> None:
        self._progress = progress
        self._leads = rank == 0
        self._lead_steps = LEAD_STEPS if world_size > 1 else 0
        self.is_shared = world_size > 1
        """Whether there are other ranks."""

    def reached(self, mark: Mark, *, wanted: bool, num_steps: int) -> bool:
        """Whether the change to `mark` happens at this step.

        Args:
            mark: The change.
            wanted: Whether this rank would change now; only rank 0's wish counts.
            num_steps: Optimizer steps that this rank has done.
        """
        at = self._progress.get(mark)
        if at == 0 and self._leads and wanted:
            at = max(1, num_steps + self._lead_steps)
            self._progress.put(mark, at)
        return at != 0 and num_steps >= at

    def forget(self, mark: Mark) -> None:
        """Lets a change happen once more."""
        if self._leads:
            self._progress.put(mark, 0)

    def done(self, num_steps: int) -> None:
        """Tells the tuner how far the trial is."""
        if self._leads:
            self._progress.put(Mark.STEPS, num_steps)
