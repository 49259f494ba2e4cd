"""Optimizer steps that a gradient scaler skipped because gradients overflowed. Pure.

A script that skips many steps by itself is measured all the same. The share of skipped steps under its own settings
decides for all trials of the study: whether samples of skipped steps count, and how many steps other settings may skip.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.measure.block import Block, Phase
from autotune.model.result import RankResult
from autotune.model.trial_records import TrialRecord
from autotune.protocol.job import TrialJob

MAX_SKIPPED_SHARE = 0.05
"""Largest share of skipped steps in the window of a usual trial: with more, it trains too little in the measured time.
"""
OWN_SKIPS_FACTOR, MOST_SKIPPED_SHARE = 2.0, 0.9
"""Limits to skipped steps in the number format of a script that skips many by itself: a multiple of the share under the
script's own settings, since the share changes during training, and a largest share."""


def skipped_share(blocks: Sequence[Block]) -> float:
    """Share of skipped steps in the window; 0 without a window."""
    num_steps, num_skipped = _counts(blocks)
    return num_skipped / num_steps if num_steps else 0.0


def most_skipped_share(ranks: Sequence[RankResult]) -> float:
    """Largest share of skipped steps in the window of a rank; 0 without ranks."""
    return max((skipped_share(rank.blocks) for rank in ranks), default=0.0)


def own_skipped_share(records: Sequence[TrialRecord], baseline: int | None) -> float | None:
    """Share of skipped steps under the script's own settings, by the trial with this number; None without the trial."""
    own = [record.result.ranks for record in records if record.number == baseline]
    return most_skipped_share(own[0]) if own else None


def why_skipped(rank: RankResult, allowed: float = MAX_SKIPPED_SHARE) -> str:
    """The sentence on too many skipped steps in the window; empty when few or none were skipped."""
    if skipped_share(rank.blocks) <= allowed:
        return ""
    num_steps, num_skipped = _counts(rank.blocks)
    return f"{num_skipped} of {num_steps} optimizer steps were skipped because gradients overflowed."


def allowed_share(job: TrialJob) -> float:
    """Largest share of skipped steps with which a trial of the job is measured.

    The first trial has the script's own settings, and may skip nearly all steps. Later trials may skip more than a few
    only in the script's own number format, and only if the first trial did.
    """
    if job.own_skipped_share is None:
        return MOST_SKIPPED_SHARE if _is_own(job) else MAX_SKIPPED_SHARE
    if not _has_own_format(job):
        return MAX_SKIPPED_SHARE
    return max(MAX_SKIPPED_SHARE, min(MOST_SKIPPED_SHARE, OWN_SKIPS_FACTOR * job.own_skipped_share))


def counts_skipped(job: TrialJob, ranks: Sequence[RankResult]) -> bool:
    """Whether samples of skipped steps count in the job's rate: only if the script's own settings skip many steps.

    All trials of such a study compare speed alone. In other studies a skipped step has trained nothing.
    """
    own_share = job.own_skipped_share
    if own_share is None:
        own_share = most_skipped_share(ranks) if _is_own(job) else 0.0
    return own_share > MAX_SKIPPED_SHARE


def _is_own(job: TrialJob) -> bool:
    """Whether the job has the script's own settings."""
    asked, own = job.request.settings, job.script_settings
    if asked is None or own is None:
        return True
    is_cpu = job.device == "cpu"
    return asked.canonical(device_is_cpu=is_cpu) == own.canonical(device_is_cpu=is_cpu)


def _has_own_format(job: TrialJob) -> bool:
    """Whether the job has the script's own number format."""
    asked, own = job.request.settings, job.script_settings
    return asked is None or own is None or asked.precision is own.precision


def _counts(blocks: Sequence[Block]) -> tuple[int, int]:
    """Steps and skipped steps of the window."""
    window = [block for block in blocks if block.phase is Phase.WINDOW]
    return sum(block.num_steps for block in window), sum(block.num_skipped_steps for block in window)
