"""Stored studies in words: the best settings, the trials, and the list of studies. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.model.search_result import SearchResult
from autotune.report.usage_text import usage_lines
from autotune.report.verification_text import latest_lines
from autotune.report.words import clean, ratio_text, value_text
from autotune.units import format_bytes, format_interval, format_rate


def best_text(result: SearchResult, *, status: str, is_final: bool) -> str:
    """The best settings of a study, one line per difference from the script's own settings, and the path of the config.

    Args:
        result: The result so far.
        status: Status of the study.
        is_final: True when the figures come from finals.
    """
    best = result.best
    head = f"study {clean(result.study)}, {status.replace('_', ' ')}"
    if best is None:
        return f"{head}: nothing was measured" + ("" if is_final else " yet") + ".\n"
    lines = [f"{head}: trial {best.trial}"]
    if best.samples_per_second is not None:
        interval = f" {format_interval(*best.interval)}" if best.interval is not None else ""
        lines.append(f"{format_rate(best.samples_per_second)}{interval} {result.samples_unit} per second")
    if result.speedup is not None:
        lines.append(f"{ratio_text(result.speedup)} the script's own settings")
        lines += latest_lines(result)
    elif not is_final:
        lines.append("not confirmed by finals yet")
    if best.peak_memory_bytes is not None:
        cap = format_bytes(result.memory_cap_bytes)
        lines.append(f"peak memory {format_bytes(best.peak_memory_bytes)} of the cap of {cap}")
    lines.append("")
    lines += _settings_lines(result)
    usage = usage_lines(result)
    lines += ["", *usage] if usage else []
    if result.config is not None:
        lines += ["", f"config: {clean(result.config)}"]
    return "\n".join(lines) + "\n"


def _settings_lines(result: SearchResult) -> list[str]:
    """Differences of the best settings from the baseline's, with the baseline's values."""
    assert result.best is not None
    settings = result.best.settings
    own = result.baseline.settings if result.baseline is not None else settings
    changed = settings.differences(own)
    if not changed:
        return ["Your script's own settings; --json has each of them."]
    width = max(map(len, changed))
    lines = [
        f"{clean(name):<{width}}  {value_text(value)}  (was {value_text(before)})"
        for name, (value, before) in changed.items()
    ]
    return [*lines, "All other settings are your script's own; --json has each of them."]


def table_text(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under a header, in columns two blanks apart; the last column has any width."""
    cells = [[clean(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells)
    return "".join(f"{line}\n" for line in lines)
