"""Stages of the plan that see to the micro-batch under the memory cap. Pure."""

from __future__ import annotations

from autotune.search.walk import Walk
from autotune.space.space import SPLIT, Value

PROBE_SHARE = 0.25
"""A small-batch probe takes this share of the micro-batch: far enough away to give the line its slope."""


def shrink_to_fit(walk: Walk) -> None:
    """Where the script's own settings need more than the cap: smaller micro-batches until one fits."""
    size = float(walk.best.batch_size or 0)
    while not walk.best_rate and size > 1:
        size *= PROBE_SHARE
        value = _largest_below(walk, size)
        if value is None:
            break
        walk.consider({_parameter(walk): value}, "fit")


def grow_micro_batch(walk: Walk) -> None:
    """The largest micro-batch that the memory model lets pass, for as long as larger is faster."""
    name = _parameter(walk)
    _probe_memory(walk)
    while True:
        fitting = [value for value in _larger(walk) if walk.fits(walk.changed({name: value}))]
        if not fitting or not walk.consider({name: fitting[-1]}, "micro_batch"):
            break


def shrink_micro_batch(walk: Walk) -> None:
    """Smaller micro-batches while they are faster: on a CPU they may stay in its caches."""
    walk.climb(_parameter(walk), "micro_batch", steps=(-1,))


def _probe_memory(walk: Walk) -> None:
    """A small micro-batch, where one point does not tell whether a larger one fits."""
    larger = _larger(walk)
    if not larger or not walk.best_rate:
        return
    next_larger = walk.changed({_parameter(walk): larger[0]})
    if walk.memory.is_determined(next_larger) or not walk.space.why_not(next_larger) is None:
        return
    if walk.fits(next_larger) or walk.memory.ruled_out(next_larger, walk.limits.cap_bytes) is not None:
        return
    value = _largest_below(walk, PROBE_SHARE * (walk.best.batch_size or 0))
    value = walk.neighbour(_parameter(walk), -1) if value is None else value
    if value is not None and walk.is_open(probe := walk.changed({_parameter(walk): value})):
        walk.measured(probe, "memory_probe")


def _parameter(walk: Walk) -> str:
    """The parameter that holds the micro-batch."""
    return SPLIT if SPLIT in walk.space.domains else "batch_size"


def _larger(walk: Walk) -> tuple[Value, ...]:
    values = walk.choices(_parameter(walk))
    own = walk.own(_parameter(walk)) if values else None
    return values[values.index(own) + 1 :] if own in values else ()


def _largest_below(walk: Walk, size: float) -> Value | None:
    """The allowed value of the largest micro-batch that is not above a size."""
    name = _parameter(walk)
    fitting = [value for value in walk.choices(name) if (walk.changed({name: value}).batch_size or 0) <= size]
    return fitting[-1] if fitting else None
