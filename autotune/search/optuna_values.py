"""Optuna's values for a trial's ending: one row per outcome. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.model.outcome import Outcome
from autotune.model.result import TrialResult

LEAST_EXCESS = 0.02
"""Smallest reported violation of the cap: a refused allocation is often smaller than the missing memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A finished trial as Optuna sees it. Constraints are feasible at 0 and below."""

    value: float
    """Samples per second; 0 without a rate."""
    memory: float
    """Peak over cap, minus 1."""
    valid: float
    """-1 for a sound trial, 1 for a trial that failed for another reason than memory."""

    @property
    def constraints(self) -> Mapping[str, float]:
        """The same keys in the same order for every trial, because samplers pair constraints by position."""
        return {"memory": self.memory, "valid": self.valid}


def verdict(result: TrialResult, cap_bytes: int) -> Verdict | None:
    """Optuna's values for a result; None when the settings are not to blame, because the trial will run again."""
    excess = result.peak_memory_bytes / cap_bytes - 1 if result.peak_memory_bytes is not None else 0.0
    match result.outcome:
        case Outcome.INTERRUPTED:
            return None
        case Outcome.OK | Outcome.RACED_OUT:
            return Verdict(value=result.rate_or_bound or 0.0, memory=min(excess, 0.0), valid=-1.0)
        case Outcome.OVER_CAP | Outcome.OUT_OF_MEMORY:
            return Verdict(value=0.0, memory=max(excess, LEAST_EXCESS), valid=-1.0)
        case Outcome.INVALID | Outcome.CRASHED | Outcome.TIMED_OUT:
            return Verdict(value=0.0, memory=min(excess, 0.0), valid=1.0)
