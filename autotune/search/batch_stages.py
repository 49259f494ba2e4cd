"""Stages of the plan that see to the micro-batch under the memory cap. Pure."""

from __future__ import annotations

from autotune.search.walk import Walk
from autotune.space.space import SPLIT, Value

PROBE_SHARE = 0.25
"""A small-batch probe takes this share of the micro-batch: far enough away to give the line its slope."""


def shrink_to_fit(walk: Walk) -> None:
    """Where the script's own settings need more than the cap: smaller micro-batches until one fits."""
    size = float(walk.best.batch_size or 0)
    while not walk.best_rate and (smaller := _values_below(walk, size := size * PROBE_SHARE)):
        walk.consider({_parameter(walk): smaller[-1]}, "fit")


def grow_micro_batch(walk: Walk) -> None:
    """The largest micro-batch that the memory model lets pass, for as long as larger is faster."""
    name = _parameter(walk)
    _probe_memory(walk)
    while True:
        larger = _values_above(walk)
        fitting = [value for value in larger if walk.fits(walk.changed({name: value}), is_near_cap=True)]
        if not fitting or not walk.consider({name: fitting[-1]}, "micro_batch", is_near_cap=True):
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


def _values_below(walk: Walk, most: float) -> list[Value]:
    """Allowed values of micro-batches up to a size, in rising order."""
    return [value for value, size in _sizes(walk) if size <= most]


def _sizes(walk: Walk) -> list[tuple[Value, int]]:
    name = _parameter(walk)
    sizes = [(value, walk.changed({name: value}).batch_size or 0) for value in walk.choices(name)]
    return sorted(sizes, key=lambda pair: pair[1])
