"""Where the seconds of a search's trials went. Pure."""

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
"""What a part of a trial is called, in the order in which they come. What is measured on the way to the window, the
compute-only rate and the first real batches, warms up as well."""
MEASURING = ("warm-up", "windows")


def seconds_by_part(results: Iterable[TrialResult]) -> dict[str, float]:
    """Seconds that trials spent on each part, in the order in which the parts come; without those that took nothing."""
    sums = dict.fromkeys(WORDS.values(), 0.0)
    for result in results:
        for part, duration_s in result.durations_s.items():
            name = WORDS.get(part, part)
            sums[name] = sums.get(name, 0.0) + duration_s
    return {name: total_s for name, total_s in sums.items() if total_s > 0}


def parts_text(results: Iterable[TrialResult]) -> str:
    """One sentence: of how many seconds how many were measuring, and where the others went; empty where nothing ran."""
    parts = seconds_by_part(results)
    if not parts:
        return ""
    measuring_s = sum(parts.get(name, 0.0) for name in MEASURING)
    named = ", ".join(f"{name} {format_seconds(total_s)}" for name, total_s in parts.items())
    total_s = sum(parts.values())
    return f"of {format_seconds(total_s)}, {format_seconds(measuring_s)} were spent measuring: {named}"
