"""The use of the machine before and after, in rows for people. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from autotune.model.search_result import SearchResult
from autotune.model.usage import Usage
from autotune.units import format_bytes

NOTABLY_LESS = 0.95
"""Share of the former utilization below which a fall is explained."""
KWH = 3.6e6
"""Joules."""
LEAST_TFLOPS = 0.01
"""Arithmetic below this says nothing without a peak."""
WHY_LESS = (
    "The GPU is busy for less of the time although it trains more: its kernels take less time for a sample, and the "
    "rest of a step, on the host or in the loader, takes as long as before."
)


def usage_rows(result: SearchResult) -> Iterator[tuple[str, str, str]]:
    """Name, the baseline's figure and the best's figure, for each figure known on either side."""
    before = result.baseline.usage if result.baseline is not None else None
    after = result.best.usage if result.best is not None else None
    for name, text in _ROWS:
        figures = [text(usage) if usage is not None else "" for usage in (before, after)]
        if any(figures):
            yield name, figures[0] or "-", figures[1] or "-"


def usage_lines(result: SearchResult) -> list[str]:
    """The rows as lines in columns, with the reason for a fallen utilization; empty without figures."""
    rows = list(usage_rows(result))
    if not rows:
        return []
    is_same = result.best is None or result.baseline is None or result.best.trial == result.baseline.trial
    width, before_width = max(len(row[0]) for row in rows), max(len(row[1]) for row in rows)
    lines = ["Use of the machine:" if is_same else "Use of the machine, by your settings and by these:"]
    for name, before, after in rows:
        figures = after if is_same else f"{before:<{before_width}} -> {after}"
        lines.append(f"  {name:<{width}}  {figures}")
    why = why_less(result)
    return [*lines, why] if why else lines


def why_less(result: SearchResult) -> str:
    """Reason for a lower utilization at a higher rate; empty without a fall."""
    if result.baseline is None or result.best is None or result.baseline.usage is None or result.best.usage is None:
        return ""
    before, after = result.baseline.usage.device_utilization, result.best.usage.device_utilization
    is_faster = (result.best.samples_per_second or 0.0) > (result.baseline.samples_per_second or 0.0)
    return WHY_LESS if before and after is not None and after < NOTABLY_LESS * before and is_faster else ""


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _power(usage: Usage) -> str:
    if usage.power_w is None or usage.joules_per_sample is None:
        return ""
    return f"{usage.power_w:.0f} W, {usage.joules_per_sample:.3g} J each"


def _energy(usage: Usage) -> str:
    saved = usage.saved_joules_per_hour
    if saved is None:
        return ""
    words = "less" if saved >= 0 else "more"
    return f"{abs(saved) / KWH:.3g} kWh {words} for what took an hour"


def _memory(usage: Usage) -> str:
    if usage.peak_memory_bytes is None or usage.total_memory_bytes is None:
        return ""
    return f"{format_bytes(usage.peak_memory_bytes)} of {format_bytes(usage.total_memory_bytes)}"


def _arithmetic(usage: Usage) -> str:
    if usage.tflops is None or (usage.mfu is None and usage.tflops < LEAST_TFLOPS):
        return ""
    if usage.mfu is None:
        return f"{usage.tflops:.3g} TFLOP/s"
    return f"MFU {usage.mfu:.1%}, {usage.tflops:.3g} of {usage.peak_tflops:.0f} TFLOP/s"


def _cores(usage: Usage) -> str:
    return "" if usage.cpus is None else f"{usage.cpus:.1f} of {usage.usable_cpus:g}"


def _disk(usage: Usage) -> str:
    if usage.read_bytes_per_s is None:
        return ""
    waits = "" if usage.io_wait is None else f", I/O wait {usage.io_wait:.0%}"
    return f"{format_bytes(round(usage.read_bytes_per_s))}/s{waits}"


_ROWS: tuple[tuple[str, Callable[[Usage], str]], ...] = (
    ("GPU utilization", lambda usage: _share(usage.device_utilization)),
    ("SM activity", lambda usage: _share(usage.sm_activity)),
    ("model arithmetic", _arithmetic),
    ("power, per sample", _power),
    ("energy", _energy),
    ("memory", _memory),
    ("host cores", _cores),
    ("read from disk", _disk),
)
