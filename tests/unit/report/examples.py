"""A search of a small loader-bound script, as events and as a result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autotune.model.events import ProbeFinished, SearchStarted, TrialFinished
from autotune.model.outcome import Outcome
from autotune.model.result import Measurement, TrialResult
from autotune.model.search_result import Contender, Contribution, SearchResult, Status, TrialCounts
from autotune.report.summary_text import NextCommands
from autotune.settings import Precision, Settings
from autotune.units import GIB

from ..facts import script_facts

NATURAL = Settings(batch_size=64, intra_op_threads=2)
TUNED = replace(NATURAL, num_workers=4, persistent_workers=True, precision=Precision.BF16)

STARTED = SearchStarted(
    study="train",
    script="/home/ada/photos/train.py",
    machine="NVIDIA H200, 8 usable cores, torch 2.13.0",
    memory_cap_bytes=16 * GIB,
    max_trials=40,
    budget_s=900.0,
    num_finished=0,
    storage="sqlite:////home/ada/photos/studies/autotune.db",
)
PROBED = ProbeFinished(
    facts=script_facts(),
    natural=NATURAL,
    refused=(("split", "BatchNorm would see smaller batches"),),
    wall_s=6.4,
)


def measured(rate: float, **changes: Any) -> TrialResult:
    """A trial that ran to its end at that rate."""
    measurement = Measurement(
        samples_per_second=rate,
        low=0.99 * rate,
        high=1.01 * rate,
        is_converged=True,
        is_nonstationary=False,
        is_primed=False,
        num_blocks=20,
        window_s=8.0,
        data_wait_fraction=0.4,
        compute_samples_per_second=2 * rate,
    )
    return replace(
        TrialResult(outcome=Outcome.OK, measurement=measurement, peak_memory_bytes=10 * GIB, wall_s=12.0), **changes
    )


def failed(outcome: Outcome, reason: str, **changes: Any) -> TrialResult:
    """A trial without a rate."""
    return replace(TrialResult(outcome=outcome, reason=reason, wall_s=4.0), **changes)


def finished(number: int, settings: Settings, result: TrialResult, *, is_best: bool = False) -> TrialFinished:
    return TrialFinished(number=number, settings=settings, stage="workers", result=result, is_best=is_best)


BASELINE = Contender(
    trial=0,
    settings=NATURAL,
    feasible=True,
    samples_per_second=1294.0,
    interval=(1280.0, 1310.0),
    peak_memory_bytes=10 * GIB,
)
BEST = Contender(
    trial=19,
    settings=TUNED,
    feasible=True,
    samples_per_second=3118.0,
    interval=(3097.0, 3140.0),
    peak_memory_bytes=12 * GIB,
)


CONTRIBUTIONS = (
    Contribution(
        settings=("num_workers", "persistent_workers"),
        ratio=2.1,
        interval=(2.05, 2.15),
        is_least=False,
        from_trial=0,
        to_trial=3,
        is_along=True,
    ),
    Contribution(
        settings=("precision",),
        ratio=1.02,
        interval=(0.98, 1.06),
        is_least=False,
        from_trial=3,
        to_trial=19,
        is_along=True,
    ),
    Contribution(
        settings=("num_workers",),
        ratio=1.4,
        interval=None,
        is_least=True,
        from_trial=5,
        to_trial=7,
        is_along=False,
    ),
)


def search_result(**changes: Any) -> SearchResult:
    """An improved search, with some fields changed."""
    result = SearchResult(
        study="train",
        status=Status.IMPROVED,
        baseline=BASELINE,
        best=BEST,
        speedup=(2.41, 2.35, 2.47),
        bottleneck="loader",
        bottleneck_after="compute",
        data_wait_fraction=0.61,
        ceiling_samples_per_second=3300.0,
        trials=TrialCounts(complete=30, infeasible=4, failed=3, gated=2),
        memory_cap_bytes=16 * GIB,
        wall_s=842.0,
        measuring_s=400.0,
        config="/home/ada/photos/autotune.yaml",
        reason="The plan is through.",
        contributions=CONTRIBUTIONS,
    )
    return replace(result, **changes)


COMMANDS = NextCommands(
    resume="autotune resume train",
    export="autotune export train --to json",
    show="autotune studies show train",
    report="autotune report train",
    run="autotune run train.py -- --data photos",
    cwd="/home/ada/photos",
)
