"""Optimizer steps that a gradient scaler skipped because gradients overflowed. Pure.

The steps of a script's own number format are skipped whatever the other settings are, so only a much larger share than
under the script's own settings counts against settings.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.measure.block import Block, Phase
from autotune.model.result import RankResult
from autotune.protocol.job import TrialJob

MAX_SKIPPED_SHARE = 0.05
"""Largest share of skipped steps in the window: with more, a trial trains too little in the measured time."""
OWN_SKIPS_FACTOR = 2.0
"""Largest share of skipped steps in the script's own number format, as a multiple of the share under the script's own
settings: the share changes while the script trains."""


def skipped_share(blocks: Sequence[Block]) -> float:
    """Share of skipped steps in the window; 0 without a window."""
    num_steps, num_skipped = _counts(blocks)
    return num_skipped / num_steps if num_steps else 0.0


def why_skipped(rank: RankResult, allowed_share: float = MAX_SKIPPED_SHARE) -> str:
    """The sentence on too many skipped steps in the window; empty when few or none were skipped."""
    if skipped_share(rank.blocks) <= allowed_share:
        return ""
    num_steps, num_skipped = _counts(rank.blocks)
    return f"{num_skipped} of {num_steps} optimizer steps were skipped because gradients overflowed."


def allowed_share(job: TrialJob) -> float:
    """Largest share of skipped steps with which a trial of the job is measured.

    Any share under the script's own settings, whose speed is the baseline; more than usual under other settings with
    the script's own number format, if the script's own settings skip as many steps.
    """
    own, asked = job.script_settings, job.request.settings
    if own is None or asked is None or asked == own:
        return 1.0
    if asked.precision is not own.precision:
        return MAX_SKIPPED_SHARE
    return max(MAX_SKIPPED_SHARE, OWN_SKIPS_FACTOR * job.own_skipped_share)


def counted_samples(window: Sequence[Block]) -> float:
    """Samples of the window's completed steps, or of all steps where more than a few were skipped.

    Samples of skipped steps trained nothing. More than a few are skipped only where the script's own settings skip as
    many, so that the samples of all steps compare the settings.
    """
    if skipped_share(window) > MAX_SKIPPED_SHARE:
        return sum(block.num_samples for block in window)
    return sum(block.num_samples * (1 - block.num_skipped_steps / block.num_steps) for block in window)


def _counts(blocks: Sequence[Block]) -> tuple[int, int]:
    """Steps and skipped steps of the window."""
    window = [block for block in blocks if block.phase is Phase.WINDOW]
    return sum(block.num_steps for block in window), sum(block.num_skipped_steps for block in window)
