"""Keeps what runs have shown of the script's own end, for later runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from autotune.model.result import TrialResult
from autotune.protocol.job import TrialJob


@dataclass(slots=True)
class ScriptEnd:
    """The script's own end, as far as earlier runs have shown it."""

    keeps_epochs: bool = False
    """True after the script failed in an epoch that was prolonged past the script's own end."""
    script_steps: int | None = None
    """Optimizer steps until the script ended by itself, when a run needed more steps; None when unknown."""

    def written_to(self, job: TrialJob) -> TrialJob:
        """The job with the knowledge of the script's end."""
        return replace(job, keeps_epochs=self.keeps_epochs, script_steps=self.script_steps)

    def learn(self, result: TrialResult) -> bool:
        """Learns from a run; true when a second run can make use of the knowledge.

        A script may fail past the end of its epoch, or end by itself after too few steps.
        """
        if any(rank.is_past_its_epoch for rank in result.ranks) and not self.keeps_epochs:
            self.keeps_epochs = True
            return True
        num_steps = min((rank.num_steps for rank in result.ranks), default=0)
        if not result.has_ended_early or not 0 < num_steps < (self.script_steps or math.inf):
            return False
        self.script_steps = num_steps
        return True
