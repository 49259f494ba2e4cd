"""Stages of the plan that see to the micro-batch under the memory cap. Pure."""

from __future__ import annotations

from autotune.search.walk import Walk
from autotune.space.space import SPLIT, Value

PROBE_SHARE = 0.25
"""A small-batch probe takes this share of the micro-batch: far enough away to give the line its slope."""


LARGEST_STEP = 8
"""Factor by which a micro-batch grows at most at once: a step takes that much longer, and a trial has a time limit."""


def shrink_to_fit(walk: Walk) -> None:
    """Where the script's own settings need more than the cap: smaller micro-batches until one fits."""
    baseline = walk.visited.baseline
    if baseline is None or not baseline.outcome.is_infeasible:
        return
    size = float(walk.best.batch_size or 0)
    while not walk.best_rate and (smaller := _values_below(walk, size := size * PROBE_SHARE)):
        walk.consider({_parameter(walk): smaller[-1]}, "fit")


def grow_micro_batch(walk: Walk) -> None:
    """The largest micro-batch that the memory model lets pass, in bounded steps and for as long as larger is faster."""
    _probe_memory(walk)
    while larger := _values_that_fit(walk):
        changes, rate_before = {_parameter(walk): larger[-1]}, walk.best_rate
        settings = walk.changed(changes)
        walk.consider(changes, "micro_batch")
        trial = walk.visited.get(settings)
        is_too_large = trial is not None and trial.outcome.is_infeasible
        if not is_too_large and walk.best_rate <= rate_before * (1 + walk.limits.noise_ratio):
            break
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


def _probe_memory(walk: Walk) -> None:
    """A small micro-batch, where one point does not tell whether a larger one fits."""
    larger, smaller = _values_above(walk), _values_below(walk, (walk.best.batch_size or 0) - 1)
    if not larger or not smaller or not walk.best_rate:
        return
    name = _parameter(walk)
    next_larger = walk.changed({name: larger[0]})
    if walk.memory.is_determined(next_larger) or walk.fits(next_larger):
        return
    far = _values_below(walk, PROBE_SHARE * (walk.best.batch_size or 0))
    probe = walk.changed({name: far[-1] if far else smaller[0]})
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
    """Allowed values of larger micro-batches than the best, in rising order."""
    return [value for value, size in _sizes(walk) if size > (walk.best.batch_size or 0)]


def _values_that_fit(walk: Walk) -> list[Value]:
    """Those of larger micro-batches within a step that are likely to stay under the cap and were not tried."""
    name, most = _parameter(walk), LARGEST_STEP * (walk.best.batch_size or 0)
    within = [value for value in _values_below(walk, most) if value in _values_above(walk)]
    return [value for value in within if walk.is_open(walk.changed({name: value}))]


def _values_below(walk: Walk, most: float) -> list[Value]:
    """Allowed values of micro-batches up to a size, in rising order."""
    return [value for value, size in _sizes(walk) if size <= most]


def _sizes(walk: Walk) -> list[tuple[Value, int]]:
    name = _parameter(walk)
    sizes = [(value, walk.changed({name: value}).batch_size or 0) for value in walk.choices(name)]
    return sorted(sizes, key=lambda pair: pair[1])
