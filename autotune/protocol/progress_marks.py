"""Slots of the shared file of a trial: agreements of the ranks, and the phase for the tuner. Standard library only."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import IntEnum

SLOT_BYTES = 8
"""Size of a slot: a signed integer in the machine's byte order."""


class Mark(IntEnum):
    """Slots of eight bytes in the shared file: agreements of the ranks, and progress for the tuner."""

    STEPS = 0
    """Optimizer steps that rank 0 has done."""
    COMPUTE = 1
    OPEN = 2
    WINDOW = 3
    STOP = 4
    CONVERGED = 5
    """1 when the window ends with a narrow enough interval."""
    RESTART = 6
    """1 when the window's end is followed by the start of a new epoch."""
    SAMPLES = 7
    """Samples of rank 0 up to the end of the last block, for progress displays."""
    WAIT_US = 8
    """Microseconds that rank 0 has waited for data up to the end of the last block."""
    OBSERVED = 9
    """Step at which the observation of the loop is over."""
    RACED = 10
    """1 when the trial ends because it cannot be the fastest."""
    REPORTED = 11
    """1 when a training process has written the last report; the tuner then waits only briefly for the end of the
    process."""
    AWAITS = 12
    """1 when the measurement is over, all ranks have reported, and the process waits for another request."""


def read_marks(data: bytes) -> Mapping[Mark, int]:
    """The slots in the content of a shared file; 0 for slots that are not written yet, or missing.

    Slots of a hostile file hold any numbers.
    """
    parts = [data[at : at + SLOT_BYTES] for at in range(0, len(Mark) * SLOT_BYTES, SLOT_BYTES)]
    values = [int.from_bytes(part, sys.byteorder, signed=True) if len(part) == SLOT_BYTES else 0 for part in parts]
    return dict(zip(Mark, values, strict=True))
