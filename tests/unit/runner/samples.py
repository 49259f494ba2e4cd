"""Jobs, endings and reports of an ordinary trial, to be changed by the tests one at a time."""

from __future__ import annotations

from typing import Any

from autotune.measure.block import Block, Phase
from autotune.measure.window_stopping import WindowRule
from autotune.model.result import RankResult, RankStatus
from autotune.protocol.job import Mode, TrialJob
from autotune.settings import Settings
from autotune.units import GIB
from autotune.verdict.judge import Ending
from tests.jobs import job_of
from tests.unit.facts import script_facts


def block(**changes: Any) -> Block:
    values: dict[str, Any] = {
        "phase": Phase.WINDOW,
        "num_steps": 10,
        "num_micro_batches": 10,
        "num_samples": 640.0,
        "duration_s": 0.1,
        "data_wait_s": 0.02,
    }
    return Block(**{**values, **changes})


def rank(**changes: Any) -> RankResult:
    values: dict[str, Any] = {
        "rank": 0,
        "world_size": 1,
        "status": RankStatus.MEASURED,
        "blocks": (block(),) * 12,
        "num_steps": 120,
        "is_converged": True,
        "compute_samples_per_second": 8000.0,
    }
    return RankResult(**{**values, **changes})


def job(**changes: Any) -> TrialJob:
    values: dict[str, Any] = {
        "mode": Mode.TRIAL,
        "command": ("python", "train.py"),
        "cwd": "/home/user/project",
        "settings": Settings(batch_size=64),
        "script_settings": Settings(batch_size=64),
        "facts": script_facts(),
        "cap_bytes": 8 * GIB,
        "window": WindowRule(half_width_ratio=0.05),
        "start_limit_s": 60.0,
        "total_limit_s": 120.0,
    }
    return job_of(**{**values, **changes})


def ending(**changes: Any) -> Ending:
    values: dict[str, Any] = {"exit_code": 0, "signal": None, "peak_memory_bytes": 2 * GIB, "wall_s": 12.0}
    return Ending(**{**values, **changes})
