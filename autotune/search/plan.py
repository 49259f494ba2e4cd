"""The structured plan: which settings to try in which order, as a pure function of the finished trials.

It reads as plain sequential code. Every step asks the walk for a trial; where there is none yet the walk stops, and the
missing settings are the proposal. So a search resumes anywhere, and the plan can be read from top to bottom.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from autotune.search.batch_stages import grow_micro_batch, shrink_micro_batch, shrink_to_fit
from autotune.search.history import FinishedTrial, History
from autotune.search.plan_state import HALF, Candidate, NeedsTrial, PlanLimits, Walk, ordered
from autotune.search.worker_stages import feed, share_cores, waits_for_data, workers_for_usual_gains
from autotune.settings import Settings
from autotune.space.search_space import KNOB_PREFIX, SearchSpace, Value

BASELINE_STAGE = "baseline"

AS_ASKED_STAGE = "as_asked"
"""The script's own settings, moved into the ranges that the user gave where they lie outside."""

MEMORY_FRACTION_STAGE = "memory_fraction"
"""Trials of this stage vary the memory of the fastest settings; they are no candidates for winning."""

MAX_PASSES = 3
"""Passes around the best; one in which nothing moves is the last."""

NEARLY_FED = 0.98
"""From this share of the compute-only rate on, the loader's details are not worth a trial either."""

SMALL_GAINS = {"non_blocking", "cudnn_benchmark", "pin_memory", "persistent_workers", "prefetch_factor"}
"""Settings that gain a few percent at most where number format, memory format and workers are as they should be."""

GROWN_RATIO = 4
"""Factor of growth from which a micro-batch may be limited by something else than before."""

FRACTION_HEADROOM = 1.02
"""The allocator needs a little more than the peak that it reserved."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanFinished:
    """The plan has nothing left to try."""

    best: Settings
    """The fastest settings that it saw; the script's own when none was feasible."""
    visited: tuple[FinishedTrial, ...] = ()
    """The trials that it rests on."""

    def holds_for(self, history: History) -> bool:
        """Whether the plan over these trials ends here as well: it looks at none but those that it visits."""
        return all(history.get(trial.settings) == trial for trial in self.visited)


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
        if space.device_is_cpu:
            _around_the_best(walk)
    except NeedsTrial as need:
        return need.candidate
    return PlanFinished(best=walk.best, visited=walk.visited.trials)


def _on_accelerator(walk: Walk) -> None:
    """What usually helps, and how large a micro-batch may be: from these the rest is forecast (`after_plan`)."""
    _usual_gains(walk)
    if _is_loader_limited(walk):
        feed(walk)
    grow_micro_batch(walk)
    if _usual_compute_again(walk):
        grow_micro_batch(walk)


def _is_loader_limited(walk: Walk) -> bool:
    """Whether no loader keeps up with what computes fastest, so far: then faster compute is not what is missing."""
    most, compute = walk.bounds.most_loaded(walk.limits.usable_cpus), walk.bounds.compute_rate(walk.lead)
    return most is not None and compute is not None and compute > most


def _on_cpu(walk: Walk) -> None:
    share_cores(walk)
    grow_micro_batch(walk)
    _precision(walk)
    walk.try_others("compile", "kernels")
    walk.try_others("channels_last", "kernels")
    grow_micro_batch(walk)
    shrink_micro_batch(walk)


def _usual_gains(walk: Walk) -> None:
    """What usually helps on an accelerator, all at once; trials after the plan take back what does not help here."""
    compute = _usual_compute(walk)
    if waits_for_data(walk):
        # Seconds at the start of every trial from here on, for a gain that a loader that does not keep up would hide.
        del compute["cudnn_benchmark"]
    loader: dict[str, Value] = {
        "pin_memory": True,
        "persistent_workers": True,
        "prefetch_factor": 4,
        "num_workers": workers_for_usual_gains(walk),
    }
    settings = walk.changed({**compute, **loader})
    if settings.differences(walk.best).keys() <= SMALL_GAINS:
        # A script with its own number format and without a loader: only a compiled model is left to gain much.
        settings = walk.changed({**compute, **loader, "compile": True})
    if walk.is_open(settings):
        walk.measured(settings, "usual", favour=walk.limits.noise_ratio)
    trial = walk.visited.get(settings)
    if trial is not None and not trial.outcome.is_complete:
        # One of them does harm here; those of the loader rarely do. The others are tried one by one from here on.
        walk.consider(loader, "usual")


def _usual_compute_again(walk: Walk) -> bool:
    """What should compute faster once more at a micro-batch that has grown, where it did not or was left out before.

    Small micro-batches wait for the host's launches, which these changes do not shorten: they show nothing of the rest.

    Returns:
        Whether it computes faster now.
    """
    lead = walk.lead
    settings = walk.changed(_usual_compute(walk), lead)
    has_grown = (lead.batch_size or 0) >= GROWN_RATIO * (walk.space.natural.batch_size or 1)
    is_sound = any(trial.settings.precision is settings.precision for trial in walk.visited.sound)
    if not (has_grown and is_sound) or _is_loader_limited(walk) or not walk.is_open(settings):
        return False
    walk.measured(settings, "usual")
    return walk.lead == settings


def _usual_compute(walk: Walk) -> dict[str, Value]:
    """What usually makes an accelerator compute faster."""
    own = walk.best.precision.value
    half = next((value for value in HALF if value in walk.choices("precision")), own)
    return {
        "precision": own if own in HALF else half,
        "channels_last": True,
        "cudnn_benchmark": True,
        "non_blocking": True,
    }


def _precision(walk: Walk) -> None:
    """Other formats."""
    walk.try_others("precision", "precision")


def _own_knobs(walk: Walk) -> None:
    """The user's own knobs: every value, since nothing is known of them."""
    for name in walk.space.searched:
        if name.startswith(KNOB_PREFIX):
            walk.try_others(name, "knobs")


def _around_the_best(walk: Walk) -> None:
    """On a CPU: every change of one setting that could be worth more than the noise, until nothing moves."""
    for _ in range(MAX_PASSES):
        start = walk.best
        share_cores(walk)
        if not walk.is_fed(ratio=NEARLY_FED) and walk.best.num_workers:
            walk.climb("prefetch_factor", "loader", steps=(1,))
            walk.consider({"persistent_workers": True}, "loader")
        _precision(walk)
        grow_micro_batch(walk)
        shrink_micro_batch(walk)
        walk.try_others("omp_wait_policy", "threads")
        for name in ("compile", "channels_last"):
            walk.try_others(name, "kernels")
        walk.climb("grad_accum_steps", "accumulation")
        _own_knobs(walk)
        if walk.best == start:
            break


def smallest_memory_fraction(history: History, space: SearchSpace, limits: PlanLimits) -> Candidate | None:
    """The next trial on the way to the smallest share of the device's memory that keeps the best rate; then None.

    From the one that its peak needs upwards; the largest allowed share is the cap's own.

    Args:
        history: Finished trials.
        space: What may be tried.
        limits: The machine.
    """
    fractions = [float(value) for value in ordered(space.allowed.get("memory_fraction", ()))]
    best = next((trial for trial in history.feasible if trial.stage != MEMORY_FRACTION_STAGE), None)
    if len(fractions) < 2 or best is None or best.peak_memory_bytes is None:
        return None
    least_rate = (best.samples_per_second or 0.0) * (1 - limits.noise_ratio)
    needed = FRACTION_HEADROOM * fractions[-1] * best.peak_memory_bytes / limits.cap_bytes
    for fraction in (value for value in fractions if needed <= value < best.settings.memory_fraction):
        settings = replace(best.settings, memory_fraction=fraction)
        if settings not in history:
            return Candidate(settings=settings, stage=MEMORY_FRACTION_STAGE)
        if (history.rate(settings) or 0.0) >= least_rate:
            return None
    return None
