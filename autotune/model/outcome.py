"""How a trial can end, and what it is told to Optuna as."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """The ending of one trial. A failure is a value with a kind, never a number."""

    OK = "ok"
    """Measured, under the cap."""
    RACED_OUT = "raced_out"
    """Stopped early, its upper bound was below the best; the bound is kept, it is never a finalist."""
    OVER_CAP = "over_cap"
    """Ended by the tuner, or found at its end, with more memory than the cap."""
    OUT_OF_MEMORY = "out_of_memory"
    """The script was refused memory."""
    INVALID = "invalid"
    """Ran, but not with the settings asked, or it did not really train, or it ended too early."""
    CRASHED = "crashed"
    """The script raised, was killed by a signal, or ended without a result."""
    TIMED_OUT = "timed_out"
    """The script did not get through in its time."""
    INTERRUPTED = "interrupted"
    """Ended from outside: the tuner was stopped, or the host failed. It is run again."""

    @property
    def is_complete(self) -> bool:
        """Whether the trial has a throughput."""
        return self in (Outcome.OK, Outcome.RACED_OUT)

    @property
    def is_infeasible(self) -> bool:
        """Whether the trial needed more memory than it may have."""
        return self in (Outcome.OVER_CAP, Outcome.OUT_OF_MEMORY)

    @property
    def is_failed(self) -> bool:
        """Whether the trial went wrong for another reason than memory."""
        return self in (Outcome.INVALID, Outcome.CRASHED, Outcome.TIMED_OUT)

    @property
    def is_finished(self) -> bool:
        """Whether the trial counts against the budget; an interrupted one is run again."""
        return self is not Outcome.INTERRUPTED
