"""Stages of the plan that find the micro-batch under the memory cap. Pure."""

from __future__ import annotations

import math

from autotune.search.memory_model import HOST_MARGIN, PREDICTION_MARGIN
from autotune.search.plan_state import HALF, PlanState
from autotune.settings import Settings, Value
from autotune.space.search_space import SPLIT

PROBE_SHARE = 0.25
"""Share of the micro-batch used by a small-batch probe: far enough away to give the memory line its slope."""


WORTH_A_RISK = 1.1
"""Expected gain that justifies a micro-batch whose predicted peak exceeds the cap by the model's error."""

LARGEST_STEP = 8
"""Largest growth of a micro-batch in one step: steps take as much longer, and trials have a time limit."""


def shrink_to_fit(state: PlanState) -> None:
    """Tries smaller micro-batches until one fits, if the script's own settings need more than the cap.

    Formats of half the width come last, at the smallest micro-batch.
    """
    baseline = state.visited.baseline
    if baseline is None or not baseline.outcome.is_infeasible:
        return
    name, size = _parameter(state), float(state.best.batch_size or 0)
    smallest = next(iter(_values_below(state, size)), None)
    while not state.best_rate and (smaller := _values_below(state, size := size * PROBE_SHARE)):
        state.consider({name: smaller[-1]}, "fit")
    if smallest is not None:
        for changes in ({}, *({"precision": value} for value in HALF)):
            if not state.best_rate:
                state.consider({**changes, name: smallest}, "fit")


def grow_micro_batch(state: PlanState) -> None:
    """Grows the micro-batch in bounded steps while it fits and larger is faster.

    On an accelerator the settings with the highest compute-only rate grow, and faster means a higher compute-only rate.
    """
    _probe_memory(state)
    while (value := _next_larger(state)) is not None:
        centre, size = _centre(state), state.changed({_parameter(state): value}, _centre(state)).batch_size or 0
        if (state.bounds.batch_gain(centre, size) or math.inf) < 1 + state.limits.noise_ratio:
            break
        if not _improves_with(state, value):
            _try_middle(state, centre.batch_size or 0, size)
            break
    _grow_elsewhere(state)
    if state.space.device_is_cpu:
        _trade_workers_for_batch(state)


def larger_batch(state: PlanState) -> dict[str, Value]:
    """The change to the largest micro-batch within a step with a predicted peak under the cap; empty if none fits."""
    fitting = _values_that_fit(state)
    return {_parameter(state): fitting[-1]} if fitting else {}


def shrink_micro_batch(state: PlanState) -> None:
    """Shrinks the micro-batch while smaller is faster: on a CPU a small micro-batch may stay in the caches."""
    state.climb(_parameter(state), "micro_batch", steps=(-1,))


def with_fitting_batch(state: PlanState, changes: dict[str, Value]) -> dict[str, Value]:
    """The changes, with the largest fitting smaller micro-batch when they need more memory than the cap."""
    if state.fits(state.changed(changes)):
        return changes
    name = _parameter(state)
    smaller = [{**changes, name: value} for value in _values_below(state, (state.best.batch_size or 0) - 1)]
    return next((wider for wider in reversed(smaller) if state.fits(state.changed(wider))), changes)


def _centre(state: PlanState) -> Settings:
    """The settings to grow. A compiled model is built anew for every size, so it takes the size found without."""
    return state.best if state.space.device_is_cpu else state.eager_lead


def _improves_with(state: PlanState, value: Value) -> bool:
    """True when this micro-batch is faster."""
    before = _centre(state)
    settings = state.changed({_parameter(state): value}, before)
    is_useless = state.is_pointless(settings) if state.space.device_is_cpu else state.cannot_lead(settings, before)
    if is_useless:
        return False
    state.measured(settings, "micro_batch")
    return _centre(state) != before


def _grow_elsewhere(state: PlanState) -> None:
    """Tries a larger micro-batch in a format that needs less memory, if the gain should exceed the format's loss."""
    name, lead = _parameter(state), _centre(state)
    highest = (state.bounds.compute_rate(lead) or 0.0) * (1 + state.limits.noise_ratio)
    larger = [(value, size) for value, size in _sizes(state) if size > (lead.batch_size or 0)]
    for trial in reversed(state.visited.sound):
        compute = state.bounds.compute_rate(trial.settings) or 0.0
        if trial.settings.batch_size != lead.batch_size:
            continue
        for value, size in reversed(larger):
            settings = state.changed({name: value}, trial.settings)
            gain = state.bounds.batch_gain(lead, size) or 1.0
            if compute * gain > highest and _may_fit(state, settings):
                state.measured(settings, "micro_batch")
                return


def _next_larger(state: PlanState) -> Value | None:
    """The largest fitting micro-batch within a step, or else the next larger with a chance to fit; None otherwise."""
    fitting = _values_that_fit(state)
    if fitting:
        return fitting[-1]
    larger = _values_above(state)[:1]
    for value in larger:
        settings = state.changed({_parameter(state): value}, _centre(state))
        if _may_fit(state, settings):
            return value
    return None


def _may_fit(state: PlanState, settings: Settings) -> bool:
    """True when a new, larger micro-batch is worth the risk of exceeding the cap."""
    is_new = settings not in state.visited and state.space.why_not(settings) is None
    if not is_new or state.memory.ruled_out(settings) is not None:
        return False
    if not _values_below(state, (_centre(state).batch_size or 0) - 1):
        return True  # Without a smaller micro-batch, only a larger one tells anything.
    hoped = state.memory.hoped_peak_bytes(settings)
    gain = state.bounds.batch_gain(_centre(state), settings.batch_size or 1) or 1.0
    at_most = PREDICTION_MARGIN if gain >= WORTH_A_RISK else 1.0
    margin = HOST_MARGIN if state.space.device_is_cpu else at_most
    return hoped is not None and hoped <= margin * state.limits.cap_bytes


def _try_middle(state: PlanState, low: int, high: int) -> None:
    """Tries the middle of two micro-batches when the larger was not faster or did not fit."""
    between = [value for value, size in _sizes(state) if low < size < high]
    if between and len(between) > 1:
        value = between[len(between) // 2]
        if state.is_open(state.changed({_parameter(state): value}, _centre(state))):
            _improves_with(state, value)


def _probe_memory(state: PlanState) -> None:
    """Measures a small micro-batch if a single point does not tell whether a larger one fits."""
    own = _centre(state).batch_size or 0
    larger, smaller = _values_above(state), _values_below(state, own - 1)
    if not larger or not smaller or not state.best_rate:
        return
    name = _parameter(state)
    next_larger = state.changed({name: larger[0]}, _centre(state))
    if state.memory.is_determined(next_larger) or state.fits(next_larger):
        return
    far = _values_below(state, PROBE_SHARE * own)
    probe = state.changed({name: far[-1] if far else smaller[0]}, _centre(state))
    if state.is_open(probe):
        state.measured(probe, "memory_probe")


def _trade_workers_for_batch(state: PlanState) -> None:
    """Tries a micro-batch without workers if only the workers' memory keeps it from fitting."""
    name, cpus = _parameter(state), state.limits.usable_cpus
    alone: dict[str, Value] = {"num_workers": 0, "intra_op_threads": state.at_most("intra_op_threads", cpus)}
    for value in reversed(_values_above(state)):
        if state.best.num_workers and state.fits(state.changed({**alone, name: value})):
            state.consider({**alone, name: value}, "micro_batch")
            break


def _parameter(state: PlanState) -> str:
    """The parameter that sets the micro-batch."""
    return SPLIT if SPLIT in state.space.domains else "batch_size"


def _values_above(state: PlanState) -> list[Value]:
    """Allowed values of larger micro-batches, in rising order."""
    least = _centre(state).batch_size or 0
    return [value for value, size in _sizes(state) if size > least]


def _values_that_fit(state: PlanState) -> list[Value]:
    """Untried larger micro-batches within a step that should stay under the cap."""
    name, centre = _parameter(state), _centre(state)
    within = set(_values_below(state, LARGEST_STEP * (centre.batch_size or 0)))
    larger = [value for value in _values_above(state) if value in within]
    return [value for value in larger if state.is_open(state.changed({name: value}, centre))]


def _values_below(state: PlanState, most: float) -> list[Value]:
    """Allowed values of micro-batches up to a size, in rising order."""
    return [value for value, size in _sizes(state) if size <= most]


def _sizes(state: PlanState) -> list[tuple[Value, int]]:
    name = _parameter(state)
    sizes = [(value, state.changed({name: value}).batch_size or 0) for value in state.choices(name)]
    return sorted(sizes, key=lambda pair: pair[1])
