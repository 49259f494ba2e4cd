"""Causes for which the tuner stops a trial."""

from __future__ import annotations

from enum import StrEnum


class StopCause(StrEnum):
    """Cause to stop a trial; the value names the field of `autotune.verdict.judge.Ending`."""

    START_OVERRUN = "is_start_overrun"
    TOTAL_OVERRUN = "is_total_overrun"
    TIME_SPENT = "is_time_spent"
    ENDING_OVERRUN = "is_ending_overrun"
    OVER_CAP = "is_over_cap"
    OVER_HOST_CAP = "is_over_host_cap"
    SHARED_MEMORY_FULL = "is_shared_memory_full"
    CANCELLED = "is_cancelled"
    DISK_FULL = "is_disk_full"

    @property
    def grants_last_word(self) -> bool:
        """Whether the trial may report its state before the end."""
        return self in (StopCause.START_OVERRUN, StopCause.TOTAL_OVERRUN)
