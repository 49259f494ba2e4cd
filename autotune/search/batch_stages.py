"""Stages of the plan that see to the micro-batch under the memory cap. Pure."""

from __future__ import annotations

import math

from autotune.search.memory_model import HOST_MARGIN, PREDICTION_MARGIN
from autotune.search.plan_state import HALF, Walk
from autotune.settings import Settings
from autotune.space.search_space import SPLIT, Value

PROBE_SHARE = 0.25
"""A small-batch probe takes this share of the micro-batch: far enough away to give the line its slope."""


WORTH_A_RISK = 1.1
"""Gain from which a micro-batch is tried that may need as much more than the cap as the model is inexact."""

LARGEST_STEP = 8
"""Factor by which a micro-batch grows at most at once: a step takes that much longer, and a trial has a time limit."""


def shrink_to_fit(walk: Walk) -> None:
    """Where the script's own settings need more than the cap: smaller micro-batches until one fits.

    At the smallest, formats of half the width are the last that may.
    """
    baseline = walk.visited.baseline
    if baseline is None or not baseline.outcome.is_infeasible:
        return
    name, size = _parameter(walk), float(walk.best.batch_size or 0)
    smallest = next(iter(_values_below(walk, size)), None)
    while not walk.best_rate and (smaller := _values_below(walk, size := size * PROBE_SHARE)):
        walk.consider({name: smaller[-1]}, "fit")
    if smallest is not None:
        for changes in ({}, *({"precision": value} for value in HALF)):
            if not walk.best_rate:
                walk.consider({**changes, name: smallest}, "fit")


def grow_micro_batch(walk: Walk) -> None:
    """The largest micro-batch that the memory model lets pass, in bounded steps and for as long as larger is faster.

    On an accelerator what computes fastest grows, and faster means its compute-only rate.
    """
    _probe_memory(walk)
    while (value := _next_larger(walk)) is not None:
        centre, size = _centre(walk), walk.changed({_parameter(walk): value}, _centre(walk)).batch_size or 0
        if (walk.bounds.batch_gain(centre, size) or math.inf) < 1 + walk.limits.noise_ratio:
            break
        if not _tries(walk, value):
            _try_between(walk, centre.batch_size or 0, size)
            break
    _grow_elsewhere(walk)
    if walk.space.device_is_cpu:
        _trade_workers_for_batch(walk)


def shrink_micro_batch(walk: Walk) -> None:
    """Smaller micro-batches while they are faster: on a CPU they may stay in its caches."""
    walk.climb(_parameter(walk), "micro_batch", steps=(-1,))


def with_fitting_batch(walk: Walk, changes: dict[str, Value]) -> dict[str, Value]:
    """Changes, with the largest smaller micro-batch under the cap where they need more memory than there is."""
    if walk.fits(walk.changed(changes)):
        return changes
    name = _parameter(walk)
    smaller = [{**changes, name: value} for value in _values_below(walk, (walk.best.batch_size or 0) - 1)]
    return next((wider for wider in reversed(smaller) if walk.fits(walk.changed(wider))), changes)


def _centre(walk: Walk) -> Settings:
    """What grows."""
    return walk.best if walk.space.device_is_cpu else walk.lead


def _tries(walk: Walk, value: Value) -> bool:
    """Whether this micro-batch is faster."""
    before = _centre(walk)
    settings = walk.changed({_parameter(walk): value}, before)
    is_useless = walk.is_pointless(settings) if walk.space.device_is_cpu else walk.cannot_lead(settings)
    if is_useless:
        return False
    walk.measured(settings, "micro_batch")
    return _centre(walk) != before


def _grow_elsewhere(walk: Walk) -> None:
    """A larger micro-batch in a format that needs less memory, where it should gain more than the format loses."""
    name, lead = _parameter(walk), _centre(walk)
    highest = (walk.bounds.compute_rate(lead) or 0.0) * (1 + walk.limits.noise_ratio)
    larger = [(value, size) for value, size in _sizes(walk) if size > (lead.batch_size or 0)]
    for trial in reversed(walk.visited.sound):
        compute = walk.bounds.compute_rate(trial.settings) or 0.0
        if trial.settings.batch_size != lead.batch_size:
            continue
        for value, size in reversed(larger):
            settings = walk.changed({name: value}, trial.settings)
            gain = walk.bounds.batch_gain(lead, size) or 1.0
            if compute * gain > highest and _may_fit(walk, settings):
                walk.measured(settings, "micro_batch")
                return


def _next_larger(walk: Walk) -> Value | None:
    """The largest micro-batch within a step that is likely to fit; failing that the next larger, if there is hope."""
    fitting = _values_that_fit(walk)
    if fitting:
        return fitting[-1]
    larger = _values_above(walk)[:1]
    for value in larger:
        settings = walk.changed({_parameter(walk): value}, _centre(walk))
        if _may_fit(walk, settings):
            return value
    return None


def _may_fit(walk: Walk, settings: Settings) -> bool:
    """Whether a new larger micro-batch is worth the risk that it does not fit."""
    is_new = settings not in walk.visited and walk.space.why_not(settings) is None
    if not is_new or walk.memory.ruled_out(settings) is not None:
        return False
    if not _values_below(walk, (_centre(walk).batch_size or 0) - 1):
        return True  # With nothing smaller to learn from, one larger is the only way to learn.
    hoped = walk.memory.hoped_peak_bytes(settings)
    gain = walk.bounds.batch_gain(_centre(walk), settings.batch_size or 1) or 1.0
    at_most = PREDICTION_MARGIN if gain >= WORTH_A_RISK else 1.0
    margin = HOST_MARGIN if walk.space.device_is_cpu else at_most
    return hoped is not None and hoped <= margin * walk.limits.cap_bytes


def _try_between(walk: Walk, low: int, high: int) -> None:
    """The middle of two micro-batches of which the larger was not faster, or did not fit."""
    between = [value for value, size in _sizes(walk) if low < size < high]
    if between and len(between) > 1:
        value = between[len(between) // 2]
        if walk.is_open(walk.changed({_parameter(walk): value}, _centre(walk))):
            _tries(walk, value)


def _probe_memory(walk: Walk) -> None:
    """A small micro-batch, where one point does not tell whether a larger one fits."""
    own = _centre(walk).batch_size or 0
    larger, smaller = _values_above(walk), _values_below(walk, own - 1)
    if not larger or not smaller or not walk.best_rate:
        return
    name = _parameter(walk)
    next_larger = walk.changed({name: larger[0]}, _centre(walk))
    if walk.memory.is_determined(next_larger) or walk.fits(next_larger):
        return
    far = _values_below(walk, PROBE_SHARE * own)
    probe = walk.changed({name: far[-1] if far else smaller[0]}, _centre(walk))
    if walk.is_open(probe):
        walk.measured(probe, "memory_probe")


def _trade_workers_for_batch(walk: Walk) -> None:
    """A micro-batch that only fits without the workers' memory, without them."""
    name, cpus = _parameter(walk), walk.limits.usable_cpus
    alone: dict[str, Value] = {"num_workers": 0, "intra_op_threads": walk.at_most("intra_op_threads", cpus)}
    for value in reversed(_values_above(walk)):
        if walk.best.num_workers and walk.fits(walk.changed({**alone, name: value})):
            walk.consider({**alone, name: value}, "micro_batch")
            break


def _parameter(walk: Walk) -> str:
    """The parameter that holds the micro-batch."""
    return SPLIT if SPLIT in walk.space.domains else "batch_size"


def _values_above(walk: Walk) -> list[Value]:
    """Allowed values of larger micro-batches than what grows, in rising order."""
    least = _centre(walk).batch_size or 0
    return [value for value, size in _sizes(walk) if size > least]


def _values_that_fit(walk: Walk) -> list[Value]:
    """Those of larger micro-batches within a step that are likely to stay under the cap and were not tried."""
    name, centre = _parameter(walk), _centre(walk)
    within = set(_values_below(walk, LARGEST_STEP * (centre.batch_size or 0)))
    larger = [value for value in _values_above(walk) if value in within]
    return [value for value in larger if walk.is_open(walk.changed({name: value}, centre))]


def _values_below(walk: Walk, most: float) -> list[Value]:
    """Allowed values of micro-batches up to a size, in rising order."""
    return [value for value, size in _sizes(walk) if size <= most]


def _sizes(walk: Walk) -> list[tuple[Value, int]]:
    name = _parameter(walk)
    sizes = [(value, walk.changed({name: value}).batch_size or 0) for value in walk.choices(name)]
    return sorted(sizes, key=lambda pair: pair[1])
