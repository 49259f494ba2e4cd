"""The possible endings of a trial."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """The ending of one trial. A failure is a value with a kind, never a number."""

    OK = "ok"
    """Measured, under the cap."""
    RACED_OUT = "raced_out"
    """Stopped early because its upper bound was below the best rate; the bound is stored. Never a finalist."""
    OVER_CAP = "over_cap"
    """Used more memory than the cap: ended by the tuner, or found at its end."""
    OUT_OF_MEMORY = "out_of_memory"
    """The script was refused memory."""
    INVALID = "invalid"
    """The trial ran with other settings than requested, did not really train, or ended too early."""
    CRASHED = "crashed"
    """The script raised, was killed by a signal, or ended without a result."""
    TIMED_OUT = "timed_out"
    """The script did not finish in time."""
    INTERRUPTED = "interrupted"
    """Ended from outside: the tuner was stopped, or the host failed. The settings run again."""

    @property
    def is_complete(self) -> bool:
        """True when the trial has a throughput."""
        return self in (Outcome.OK, Outcome.RACED_OUT)

    @property
    def is_infeasible(self) -> bool:
        """True when the trial needed more memory than allowed."""
        return self in (Outcome.OVER_CAP, Outcome.OUT_OF_MEMORY)

    @property
    def is_failed(self) -> bool:
        """True when the trial failed for another reason than memory."""
        return self in (Outcome.INVALID, Outcome.CRASHED, Outcome.TIMED_OUT)

    @property
    def is_finished(self) -> bool:
        """True when the trial counts against the budget; an interrupted trial runs again."""
        return self is not Outcome.INTERRUPTED
