"""The tables of live against fresh measurements."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from typing import Any

MOST_BIAS = 0.02
"""Largest difference of a live rate from a fresh rate for a setting that is switched live."""
Line = dict[str, Any]
PARTS_OF_MEASURING = ("warm_up", "compute", "ramp", "window", "restart")


def report(lines: Sequence[Line], *, device: str, split: str) -> str:
    """The whole report in Markdown."""
    named = [{**line, "name": _name(line["change"], split)} for line in lines]
    return "\n".join([f"\n## Live against fresh, {device}\n", *_ratios(named), "", *_order(named), "", *_prices(named)])


def ratio_of(live: Sequence[Line], fresh: Sequence[Line]) -> tuple[float, float] | None:
    """The ratio of the geometric means of two groups, and its 95 % half-width as a logarithm; None without rates.

    The half-width comes from the windows' own intervals, and from the spread of repetitions where there are some.
    """
    groups = [[line for line in lines if line["rate"]] for lines in (live, fresh)]
    if not all(groups):
        return None
    logs = [[math.log(line["rate"]) for line in lines] for lines in groups]
    variance = 0.0
    for values, lines in zip(logs, groups, strict=True):
        within = [math.log(max(line["high"], 1e-9) / max(line["low"], 1e-9)) / 4 for line in lines]
        between = statistics.variance(values) if len(values) > 1 else 0.0
        variance += max(statistics.fmean(w * w for w in within), between) / len(values)
    return math.exp(statistics.fmean(logs[0]) - statistics.fmean(logs[1])), 1.96 * math.sqrt(variance)


def _ratios(lines: Sequence[Line]) -> list[str]:
    rows = ["| change | live /s | fresh /s | live / fresh | ceilings | peaks | |", "|---|---|---|---|---|---|---|"]
    biases = []
    for name in dict.fromkeys(line["name"] for line in lines):
        live = [line for line in lines if line["name"] == name and line["start"] == "live"]
        fresh = [line for line in lines if line["name"] == name and line["way"] == "fresh"]
        found = ratio_of(live, fresh)
        if found is None:
            reasons = {line["why"] for line in lines if line["name"] == name and line["why"]}
            rows.append(f"| {name} | - | - | {'; '.join(sorted(reasons))[:200]} | | | |")
            continue
        ratio, half = found
        biases.append(abs(math.log(ratio)))
        verdict = "off" if abs(math.log(ratio)) > MOST_BIAS + half else ""
        rows.append(
            f"| {name} | {_mean(live, 'rate'):.1f} | {_mean(fresh, 'rate'):.1f} | "
            f"{ratio:.3f} [{ratio * math.exp(-half):.3f}, {ratio * math.exp(half):.3f}] | "
            f"{_quotient(live, fresh, 'ceiling')} | {_quotient(live, fresh, 'peak_bytes')} | {verdict} |"
        )
    if biases:
        rows += ["", f"Median of |bias| {statistics.median(biases):.1%}, largest {max(biases):.1%}."]
    return rows


def _order(lines: Sequence[Line]) -> list[str]:
    """The script's own settings early and late in a process, and how the live ratio moves with the position."""
    own = [line for line in lines if line["name"] == "own" and line["way"] == "live" and line["rate"]]
    rows = ["### Order", "", "The script's own settings, in the order of the process: "]
    rows.append(", ".join(f"{line['rate']:.1f} ({line['start']})" for line in own))
    fresh = {line["name"]: line["rate"] for line in lines if line["way"] == "fresh" and line["rate"]}
    live = [line for line in lines if line["start"] == "live" and line["rate"] and line["name"] in fresh]
    if len(live) >= 6:
        logs = [math.log(line["rate"] / fresh[line["name"]]) for line in live]
        half = len(logs) // 2
        early, late = statistics.median(logs[:half]), statistics.median(logs[half:])
        rows.append(f"Median of live / fresh: {math.exp(early):.3f} early, {math.exp(late):.3f} late.")
    return rows


def _prices(lines: Sequence[Line]) -> list[str]:
    rows = ["### Price", "", "| way | measured | seconds each | per minute | measuring | in the window |"]
    rows.append("|---|---|---|---|---|---|")
    for way in ("live", "fresh"):
        of_way = [line for line in lines if line["way"] == way]
        if not of_way:
            continue
        seconds = sum(line["took_s"] for line in of_way)
        measuring = sum(line["durations_s"].get(part, 0.0) for line in of_way for part in PARTS_OF_MEASURING)
        window = sum(line["durations_s"].get("window", 0.0) for line in of_way)
        rows.append(
            f"| {way} | {len(of_way)} | {seconds / len(of_way):.2f} | {60 * len(of_way) / seconds:.1f} | "
            f"{measuring / seconds:.0%} | {window / seconds:.0%} |"
        )
    for way in ("live", "fresh"):
        of_way = [line for line in lines if line["way"] == way]
        parts = dict.fromkeys(part for line in of_way for part in line["durations_s"])
        means = {part: statistics.fmean(line["durations_s"].get(part, 0.0) for line in of_way) for part in parts}
        rows.append(f"\nMean seconds by part, {way}: " + ", ".join(f"{part} {s:.2f}" for part, s in means.items()))
    starts = [line["start_reason"] for line in lines if line["way"] == "live" and line["start"] != "live"]
    rows.append(f"\nNew processes among the live ones: {len(starts)}; {json.dumps(sorted(set(starts)))}")
    return rows


def _name(change: dict[str, Any], split: str) -> str:
    words = [f"{'batch split' if name == split else name}={value}" for name, value in sorted(change.items())]
    return " ".join(words) or "own"


def _mean(lines: Sequence[Line], field: str) -> float:
    return statistics.fmean(line[field] for line in lines if line[field])


def _quotient(live: Sequence[Line], fresh: Sequence[Line], field: str) -> str:
    if not any(line[field] for line in live) or not any(line[field] for line in fresh):
        return ""
    return f"{_mean(live, field) / _mean(fresh, field):.3f}"
