"""The plan of a plain loop over one loader without workers, to be changed in what a test is about."""

from __future__ import annotations

from autotune.measure.window_stopping import WindowRule
from autotune.trial.meter.measuring_plan import Plan

PLAN = Plan(
    rule=WindowRule(half_width_ratio=0.05, min_block_s=0.05),
    has_loader=True,
    num_workers=0,
    num_queued=0,
    micro_batches_per_step=1,
    incumbent_samples_per_second=None,
    samples_per_step=None,
)
