"""Compares the loss of a step after a change of the script's own accumulation. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from autotune.model.result import RankResult
from autotune.protocol.job import TrialJob

MOST_FACTOR = 1.5
"""Largest ratio of two first losses of whole steps; the samples alone make a difference. A summed or undivided loss
differs by the factor between the micro-batches: 2 or more."""


def why_other_sum(job: TrialJob, ranks: Sequence[RankResult]) -> str:
    """How the loss of a whole step departs from the script's own, with both numbers; empty for equal losses."""
    asked, own, facts = job.request.settings, job.script_settings, job.facts
    if asked is None or own is None or facts is None or not facts.accumulation_variable or not facts.first_loss:
        return ""
    if asked.grad_accum_steps == own.grad_accum_steps:
        return ""
    before = abs(facts.first_loss) * own.grad_accum_steps
    for rank in ranks:
        first = rank.first_losses[: asked.grad_accum_steps]
        after = abs(statistics.fmean(first)) * asked.grad_accum_steps if first else before
        if not 1 / MOST_FACTOR <= after / before <= MOST_FACTOR:
            return (
                f"The micro-batches of the first step have a loss of {after:.5g} together, where the script's own have "
                f"{before:.5g}: the script does not divide its loss as its variable {facts.accumulation_variable} says."
            )
    return ""
