"""What a shape's run says of each feature: a check that passed, or the reason that was given before the first trial."""

from __future__ import annotations

from collections.abc import Callable

from autotune.measure.block import Phase
from autotune.model.outcome import Outcome
from autotune.model.result import RankResult, RankStatus
from tests.integration.shapes.ground import Seen
from tests.integration.shapes.shape import (
    ACCUMULATION,
    FEATURES,
    FINDS,
    IN_FORCE,
    MEMORY,
    OVERRIDES,
    PRECISION,
    SAMPLES,
    STOP,
    Shape,
)

PASSED = "passed"
REFUSED_AS = {
    FINDS: "num_workers",
    OVERRIDES: "num_workers",
    SAMPLES: "samples_per_step",
    PRECISION: "precision",
    ACCUMULATION: "batch_size",
}
"""By feature, the name under which its refusal stands in the search space."""
LEAST_PEAK_BYTES = 4 << 20
LOADER_FIELDS = ("num_workers", "prefetch_factor")


def verdicts(shape: Shape, seen: Seen) -> dict[str, str]:
    """By feature: `passed`, or `refused: ` and the reason; whatever else there is says what is wrong."""
    if seen.refusal:
        return dict.fromkeys(FEATURES, f"refused: {seen.refusal}")
    assert seen.space is not None and seen.facts is not None
    refused = dict(seen.space.refused)
    result = {}
    for feature in FEATURES:
        name = REFUSED_AS.get(feature, "")
        reason = refused.get(name) or refused.get(f"{name}={shape.changes.get(name)}", "")
        is_found = feature is FINDS and seen.facts.loader is not None
        result[feature] = f"refused: {reason}" if reason and not is_found else CHECKS[feature](shape, seen) or PASSED
    return result


def _ranks(seen: Seen) -> tuple[RankResult, ...]:
    return seen.trial.ranks if seen.trial is not None else ()


def _finds(shape: Shape, seen: Seen) -> str:
    loader = seen.facts.loader if seen.facts is not None else None
    if loader is None:
        return "no loader was found, and nothing was said"
    return "" if loader.num_samples == shape.num_samples else f"it took one of {loader.num_samples} samples for it"


def _asked_and_seen(seen: Seen, *names: str) -> str:
    """How what was observed differs from what was asked for, among settings that are not the script's own."""
    assert seen.asked is not None and seen.space is not None and seen.trial is not None
    if not seen.trial.ranks:
        return f"{seen.trial.outcome}: {seen.trial.reason}"
    for name in names:
        asked = getattr(seen.asked, name)
        if asked == getattr(seen.space.script_settings, name):
            return f"{name} was not changed"
        for rank in seen.trial.ranks:
            if rank.observed.get(name) != asked:
                return f"{name} is {rank.observed.get(name)}, not {asked}"
    return ""


def _overrides(_: Shape, seen: Seen) -> str:
    return _asked_and_seen(seen, *LOADER_FIELDS)


def _precision(_: Shape, seen: Seen) -> str:
    return _asked_and_seen(seen, "precision")


def _accumulation(_: Shape, seen: Seen) -> str:
    assert seen.facts is not None
    seen_size = "" if seen.facts.loader is None else _asked_and_seen(seen, "batch_size")
    return seen_size or _asked_and_seen(seen, "grad_accum_steps")


def _samples(shape: Shape, seen: Seen) -> str:
    per_step = slack = 0.0
    for rank in _ranks(seen):
        window = [block for block in rank.blocks if block.phase is Phase.WINDOW]
        num_steps = sum(block.num_steps for block in window)
        if num_steps:
            per_step += sum(block.num_samples for block in window) / num_steps
            slack += _change_of_queue(shape, seen) / num_steps
    # An epoch's last batch may be smaller.
    is_right = 0.9 * shape.samples_per_step - slack <= per_step <= shape.samples_per_step + slack
    return "" if is_right else f"{per_step:.2f} samples per step, not {shape.samples_per_step}"


def _change_of_queue(shape: Shape, seen: Seen) -> float:
    """Samples read in a window beyond those trained, or the other way: all that the queue holds, and a step begun."""
    if not shape.num_read_ahead or seen.asked is None:
        return 0.0
    return shape.num_read_ahead * (seen.asked.batch_size or 0) + shape.samples_per_step


def _stop(_: Shape, seen: Seen) -> str:
    assert seen.trial is not None
    statuses = {rank.status for rank in seen.trial.ranks}
    if statuses != {RankStatus.MEASURED} or "THE END" in seen.trial.log_tail:
        return f"{statuses or 'no report'}: {seen.trial.reason} {seen.trial.log_tail[-1500:]}"
    return f"{seen.num_left} processes are left" if seen.num_left else ""


def _memory(_: Shape, seen: Seen) -> str:
    peak = seen.trial.peak_memory_bytes if seen.trial is not None else None
    if peak is None or peak < LEAST_PEAK_BYTES:
        return f"a peak of {peak} bytes"
    if seen.capped is None or seen.capped.outcome is not Outcome.OVER_CAP:
        return f"under half of its peak of {peak} bytes: {seen.capped and (seen.capped.outcome, seen.capped.reason)}"
    return ""


def _in_force(_: Shape, seen: Seen) -> str:
    """All that was changed was seen, as it was asked for; the trial itself is invalid otherwise."""
    assert seen.trial is not None and seen.asked is not None and seen.space is not None
    if seen.trial.outcome is not Outcome.OK:
        return f"{seen.trial.outcome}: {seen.trial.reason} {seen.trial.log_tail[-1500:]}"
    changed = seen.asked.differences(seen.space.script_settings.canonical(device_is_cpu=True))
    return _asked_and_seen(seen, *changed) if changed else "nothing was changed"


CHECKS: dict[str, Callable[[Shape, Seen], str]] = {
    FINDS: _finds,
    OVERRIDES: _overrides,
    SAMPLES: _samples,
    PRECISION: _precision,
    ACCUMULATION: _accumulation,
    STOP: _stop,
    MEMORY: _memory,
    IN_FORCE: _in_force,
}
"""By feature, what is wrong; empty when it passes."""
