"""The seconds of a search's trials, by part. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.model.result import TrialResult
from autotune.units import format_seconds

WORDS = {
    "server": "server",
    "start": "start",
    "imports": "imports",
    "preparation": "preparation",
    "device": "device initialization",
    "warm_up": "warm-up",
    "compute": "warm-up",
    "ramp": "warm-up",
    "window": "windows",
    "restart": "restarts of epochs",
    "ending": "ending",
    "unreported": "in trials without a report",
}
"""Names of a trial's parts, in their order. The compute-only rate and the first real batches, measured on the way to
the window, count as warm-up."""
MEASURING = ("warm-up", "windows")


def seconds_by_part(results: Iterable[TrialResult]) -> dict[str, float]:
    """Seconds of trials by part, in the parts' order; parts without time are left out."""
    sums = dict.fromkeys(WORDS.values(), 0.0)
    for result in results:
        for part, duration_s in result.durations_s.items():
            name = WORDS.get(part, part)
            sums[name] = sums.get(name, 0.0) + duration_s
    return {name: total_s for name, total_s in sums.items() if total_s > 0}


def parts_text(results: Iterable[TrialResult]) -> str:
    """One sentence on the total time, the measuring time and the other parts; empty without a run."""
    parts = seconds_by_part(results)
    if not parts:
        return ""
    measuring_s = sum(parts.get(name, 0.0) for name in MEASURING)
    named = ", ".join(f"{name} {format_seconds(total_s)}" for name, total_s in parts.items())
    total_s = sum(parts.values())
    return f"of {format_seconds(total_s)}, {format_seconds(measuring_s)} were spent measuring: {named}"
