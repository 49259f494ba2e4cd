"""The structured plan: which settings to try in which order, as a pure function of the finished trials.

It reads as plain sequential code. Every step asks the walk for a trial; where there is none yet the walk stops, and the
missing settings are the proposal. So a search resumes anywhere, and the plan can be read from top to bottom.
"""

from __future__ import annotations

from dataclasses import dataclass

from autotune.search.batch_stages import grow_micro_batch, shrink_micro_batch, shrink_to_fit
from autotune.search.history import History
from autotune.search.walk import HALF, Candidate, NeedsTrial, PlanLimits, Walk
from autotune.search.worker_stages import feed, share_cores, workers_for_usual_gains
from autotune.settings import Settings
from autotune.space.space import KNOB_PREFIX, SearchSpace, Value

BASELINE_STAGE = "baseline"

AS_ASKED_STAGE = "as_asked"
"""The script's own settings, moved into the ranges that the user gave where they lie outside."""

MEMORY_FRACTION_STAGE = "memory_fraction"
"""Trials of this stage vary the memory of the fastest settings; they are no candidates for winning."""

MAX_PASSES = 3
"""Passes around the best; one in which nothing moves is the last."""

NEARLY_FED = 0.98
"""From this share of the compute-only rate on, the loader's details are not worth a trial either."""

FRACTION_HEADROOM = 1.02
"""The allocator needs a little more than the peak that it reserved."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanFinished:
    """The plan has nothing left to try."""

    best: Settings
    """The fastest settings that it saw; the script's own when none was feasible."""


def plan(history: History, space: SearchSpace, limits: PlanLimits) -> Candidate | PlanFinished:
    """The next settings of the plan, or that it is finished.

    Args:
        history: Finished trials; those that the plan did not ask for change nothing.
        space: What may be tried.
        limits: The machine.
    """
    walk = Walk(history, space, limits)
    try:
        walk.measured(walk.best, BASELINE_STAGE)
        walk.consider({}, AS_ASKED_STAGE)
        shrink_to_fit(walk)
        if space.device_is_cpu:
            _on_cpu(walk)
        else:
            _on_accelerator(walk)
        _own_knobs(walk)
        _around_the_best(walk)
        _smallest_memory_fraction(walk)
    except NeedsTrial as need:
        return need.candidate
    return PlanFinished(best=walk.best)


def _on_accelerator(walk: Walk) -> None:
    """First what computes fastest, by the compute-only rate that every trial tells; then the loader that feeds it."""
    _usual_gains(walk)
    if _is_loader_limited(walk):
        feed(walk)
    grow_micro_batch(walk)
    _compute_ladder(walk)
    grow_micro_batch(walk)
    feed(walk)


def _is_loader_limited(walk: Walk) -> bool:
    """Whether no loader keeps up with what computes fastest, so far: then faster compute is not what is missing."""
    most, compute = walk.bounds.most_loaded(walk.limits.usable_cpus), walk.bounds.compute_rate(walk.lead)
    return most is not None and compute is not None and compute > most


def _compute_ladder(walk: Walk) -> None:
    """Changes that a step on a cached batch feels, those that usually gain most first."""
    is_narrow = walk.lead.precision.value in HALF
    if not is_narrow:
        for value in walk.choices("precision"):
            walk.lead_with({"precision": value}, "precision")
    for value in walk.choices("compile"):
        walk.lead_with({"compile": value}, "kernels")
    if is_narrow:
        for value in HALF:
            walk.lead_with({"precision": value}, "precision")
    for name in ("channels_last", "cudnn_benchmark"):
        for value in walk.choices(name):
            walk.lead_with({name: value}, "kernels")
    for name in ("stream_prefetch", "non_blocking"):
        for value in walk.choices(name):
            walk.lead_with({name: value}, "transfer")


def _on_cpu(walk: Walk) -> None:
    share_cores(walk)
    grow_micro_batch(walk)
    _precision(walk)
    walk.try_others("compile", "kernels")
    walk.try_others("channels_last", "kernels")
    grow_micro_batch(walk)
    shrink_micro_batch(walk)


def _usual_gains(walk: Walk) -> None:
    """What usually helps on an accelerator, all at once; later passes take back what does not help here."""
    own = walk.best.precision.value
    half = next((value for value in HALF if value in walk.choices("precision")), own)
    compute: dict[str, Value] = {
        "precision": own if own in HALF else half,
        "channels_last": True,
        "cudnn_benchmark": True,
        "non_blocking": True,
    }
    loader: dict[str, Value] = {
        "pin_memory": True,
        "persistent_workers": True,
        "prefetch_factor": 4,
        "num_workers": workers_for_usual_gains(walk),
    }
    settings = walk.changed({**compute, **loader})
    if walk.is_open(settings):
        walk.measured(settings, "usual", favour=walk.limits.noise_ratio)
    trial = walk.visited.get(settings)
    if trial is not None and not trial.outcome.is_complete:
        # One of them does harm here; those of the loader rarely do. The others are tried one by one from here on.
        walk.consider(loader, "usual")


def _precision(walk: Walk) -> None:
    """Other formats; on an accelerator the wide ones are not gone back to once a narrow one is ahead."""
    is_narrow = walk.best.precision.value in HALF and not walk.space.device_is_cpu
    for value in HALF if is_narrow else walk.choices("precision"):
        walk.consider({"precision": value}, "precision")


def _own_knobs(walk: Walk) -> None:
    """The user's own knobs: every value, since nothing is known of them."""
    for name in walk.space.searched:
        if name.startswith(KNOB_PREFIX):
            walk.try_others(name, "knobs")


def _around_the_best(walk: Walk) -> None:
    """Every change of one setting that could be worth more than the noise, until nothing moves."""
    for _ in range(MAX_PASSES):
        start = walk.best
        if walk.space.device_is_cpu:
            share_cores(walk)
        else:
            feed(walk)
        _loader_details(walk)
        _precision(walk)
        grow_micro_batch(walk)
        if walk.space.device_is_cpu:
            shrink_micro_batch(walk)
            walk.try_others("omp_wait_policy", "threads")
        for name in ("compile", "channels_last", "cudnn_benchmark"):
            walk.try_others(name, "kernels")
        for name in ("stream_prefetch", "non_blocking", "expandable_segments"):
            walk.try_others(name, "transfer")
        walk.climb("grad_accum_steps", "accumulation")
        _own_knobs(walk)
        if walk.best == start:
            break


def _loader_details(walk: Walk) -> None:
    if walk.is_fed(ratio=NEARLY_FED):
        if not walk.space.device_is_cpu and not walk.is_at_ceiling():
            # It does not wait, and yet does not reach what it computes alone: workers and pinning are in its way.
            walk.climb("num_workers", "workers", steps=(-1,))
            walk.try_others("pin_memory", "loader")
        return
    if walk.best.num_workers:
        walk.climb("prefetch_factor", "loader", steps=(1,))
        walk.consider({"persistent_workers": True}, "loader")
    walk.try_others("pin_memory", "loader")


def _smallest_memory_fraction(walk: Walk) -> None:
    """The smallest share of the device's memory that keeps the rate, from the one that the peak needs upwards.

    The largest allowed share is the cap's own.
    """
    fractions = [float(value) for value in walk.choices("memory_fraction")]
    trial = walk.visited.get(walk.best)
    if len(fractions) < 2 or trial is None or trial.peak_memory_bytes is None or not walk.best_rate:
        return
    best, least_rate = walk.best, walk.best_rate * (1 - walk.limits.noise_ratio)
    needed = FRACTION_HEADROOM * fractions[-1] * trial.peak_memory_bytes / walk.limits.cap_bytes
    for fraction in [value for value in fractions if needed <= value < best.memory_fraction]:
        settings = walk.changed({"memory_fraction": fraction}, best)
        if walk.is_open(settings):
            walk.measured(settings, MEMORY_FRACTION_STAGE)
        if (walk.visited.rate(settings) or 0.0) >= least_rate:
            break
